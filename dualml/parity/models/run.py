"""Parent process of a comparison: describe the job, run two workers, judge their traces."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.backend import BackendInfo, backends
from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml.common.json_types import JsonObject
from dualml.common.machine import python_argv, usable_cores
from dualml.experiment.comparison import Note
from dualml.launch.process import Launch
from dualml.launch.supervise import GroupResult, describe_exit, last_lines, supervise
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.heuristics import find_better_pairing, pair_by_listing, pair_transposed
from dualml.parity.models.imported.read import read_pair
from dualml.parity.models.inputs import (
    check_margin,
    resolve_losses,
    resolve_optimizers,
    serialize_map,
    to_array,
    to_arrays,
)
from dualml.parity.models.judge import MARGIN, JudgingSettings, judge_traces
from dualml.parity.models.mapping import ParameterMap
from dualml.parity.models.model_ref import COMPARING_VARIABLE, to_import_spec
from dualml.parity.models.recorder import DRAWS
from dualml.parity.models.resources import SIZE
from dualml.parity.models.trace import HEAD, Trace, read_trace

FRAMEWORKS = ("torch", "mindspore")
TIMEOUT = 300.0
#: Seconds for the search of causes, and the file with its result.
BUDGET_S = 45.0
RESULT = "explanation.json"
#: Files with the mutations that killed a search, and with the current one, as `repr` strings.
FATAL, TRYING = "fatal.txt", "trying.txt"
#: How often a search is restarted after a kernel killed it.
ATTEMPTS = 3
MAX_STEPS = 100_000  # every step keeps all of the model's tensors


def compare(
    torch_module: Any,
    mindspore_cell: Any,
    inputs: Any,
    *,
    targets: Any = None,
    loss: Any = None,
    optimizer: Any = None,
    steps: int = 1,
    map: ParameterMap | None = None,
    train: bool = True,
    seed: int = 0,
    margin: float = MARGIN,
    draws: int = DRAWS,
    timeout: float = TIMEOUT,
    folder: str | Path | None = None,
) -> ModelComparison:
    """Run a PyTorch module and its MindSpore port on the same weights and the same batch.

    Each framework runs in a process of its own, on the CPU. The module's initial weights and
    buffers are copied into the cell. Both then make ``steps`` steps on the batch. Every module's
    output, the loss, the gradients, the weights and the optimizer's state are compared with the
    effect of rounding on each side, measured by moving its weights by units in the last place.

    Args:
        torch_module, mindspore_cell: a class or a function without arguments, or ``"module:Name"``
            or ``"file.py:Name"``.
        inputs: an array, or several in the order of ``forward``; real numbers become float32,
            integers int64.
        targets: passed to the loss together with the outputs.
        loss: ``"cross_entropy"`` (of the first output, mean), ``"mse"``, ``"probe"`` (the outputs,
            weighted with fixed normal numbers; the default, needs no targets), ``"none"`` (forward
            only), or a pair of functions of ``(outputs, targets)``, PyTorch's first.
        optimizer: ``{"name": "adam", "lr": 1e-3}`` as in an experiment (dualml's own, the same rule
            on both sides), or a pair of functions of the list of parameters. None: no update.
        steps: number of steps, all on this batch; more than one needs an optimizer.
        map: PyTorch's name → MindSpore's name, or ``(name, "transpose")``, see
            `dualml.parity.models.mapping`.
        train: training mode, as opposed to evaluation.
        seed: seed of the module's initial weights and of the random numbers of both sides
            (Dropout).
        margin: how many times the measured rounding still counts as equal.
        draws: number of repetitions that measure rounding, at least 1.
        timeout: seconds for each run of the two processes (a comparison may need several), and for
            the search of causes.
        folder: keep both traces there (``a`` PyTorch, ``b`` MindSpore).

    Raises:
        UserError: the models cannot be compared; the message names the remedy.
    """
    if os.environ.get(COMPARING_VARIABLE):
        raise UserError(
            "compare() was called while a worker imported this file; put the call under "
            'if __name__ == "__main__":'
        )
    if not (1 <= steps <= MAX_STEPS and 1 <= draws <= MAX_STEPS and 0 < timeout < math.inf):
        raise UserError(
            f"steps and draws >= 1 and at most {MAX_STEPS:,}, timeout > 0; received "
            f"steps={steps}, draws={draws}, timeout={timeout}"
        )
    check_margin(margin)
    if steps > 1 and optimizer is None:
        raise UserError(f"steps={steps} needs an optimizer: without one all steps are the first")
    arrays = to_arrays(inputs, "inputs")
    target = None if targets is None else to_array(targets, "targets")
    kinds = resolve_losses(loss, target)
    infos = require_frameworks()
    updates = resolve_optimizers(optimizer)
    models = [
        to_import_spec(torch_module, "torch_module"),
        to_import_spec(mindspore_cell, "mindspore_cell"),
    ]
    sides = {
        side: {
            "label": info.name,
            "package": info.package,
            "model": model,
            "loss": kind,
            "optimizer": update,
        }
        for side, info, model, kind, update in zip("ab", infos, models, kinds, updates, strict=True)
    }
    job: dict[str, Any] = {
        "sides": sides,
        "map": serialize_map(map),
        "steps": steps,
        "targets": target is not None,
        "train": train,
        "seed": seed,
        "draws": draws,
        "timeout": timeout,
        "margin": margin,
        "budget": min(BUDGET_S, timeout),
        "path": [str(Path(place or ".").resolve()) for place in sys.path],
    }
    with tempfile.TemporaryDirectory(prefix="dualml-compare-") as temporary:
        where = Path(temporary if folder is None else folder)
        where.mkdir(parents=True, exist_ok=True)
        batches = [*arrays, *([] if target is None else [target])]
        found = run_and_judge(where, job, infos, batches)
        for guess in (pair_by_listing, pair_transposed):
            if found.verdict == "different" and (others := guess(*traces(where), job["map"])):
                found, job = retry_with_partners(where, job, infos, batches, found, others)
        found = add_explanation(where, job, infos, found)
        if partners := find_better_pairing(found, found.explanation):
            job = {**job, "map": {**job["map"], **partners}}
            found = add_explanation(where, job, infos, run_and_judge(where, job, infos, batches))
            pairs = ", ".join(f"{x} = {y}" for x, y in partners.items())
            found = replace(found, notes=(Note("exchanged", {"pairs": pairs}), *found.notes))
        return found


def traces(folder: Path) -> tuple[Trace, Trace]:
    """Read the traces of both sides from the folder of a comparison."""
    return read_trace(folder / "a"), read_trace(folder / "b")


def run_and_judge(
    folder: Path, job: dict[str, Any], infos: Sequence[BackendInfo], arrays: Sequence[NDArray[Any]]
) -> ModelComparison:
    """Run both workers and judge their traces."""
    run_workers(folder, job, infos, arrays)
    return judge_traces(*traces(folder), JudgingSettings(job["margin"], job["map"], FRAMEWORKS))


def retry_with_partners(
    folder: Path,
    job: dict[str, Any],
    infos: Sequence[BackendInfo],
    arrays: Sequence[NDArray[Any]],
    found: ModelComparison,
    partners: Mapping[str, str | tuple[str, str]],
) -> tuple[ModelComparison, dict[str, Any]]:
    """Repeat the comparison with other parameter pairs, and keep it, with its traces in ``folder``,
    if both sides agree further.

    Returns:
        The comparison to use, and its job.
    """
    other_job = {**job, "map": {**job["map"], **partners}}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".listed-") as temporary:
        place = Path(temporary)
        other = run_and_judge(place, other_job, infos, arrays)
        if other.verdict != "equal" and other.reach <= found.reach:
            return found, job
        for one in ("a", "b"):
            shutil.rmtree(folder / one)
            shutil.move(place / one, folder / one)
        shutil.move(place / "job.json", folder / "job.json")
    return other, other_job


def add_explanation(
    folder: Path, job: dict[str, Any], infos: Sequence[BackendInfo], found: ModelComparison
) -> ModelComparison:
    """Return the comparison with the causes of a difference, searched in another process; unchanged
    if there is no difference, or none whose cause can be searched. A failed search adds a note."""
    a, _ = traces(folder)
    # An error explains itself if everything before it is equal; so do missing outputs.
    searchable = found.first is None or found.first.kind not in ("outputs", "raised")
    if found.verdict == "different" and a.operations and not a.raised and searchable:
        explanation = search_causes(folder, infos[0], job["timeout"])
        if explanation is None:
            said = last_lines(folder / "explainer.log")[-1:] or ["…"]
            found = replace(found, notes=(*found.notes, Note("no_search", {"why": said[0]})))
        found = replace(found, explanation=explanation)
    return found


def compare_traces(
    folder_a: str | Path,
    folder_b: str | Path,
    *,
    map: ParameterMap | None = None,
    margin: float = MARGIN,
) -> ModelComparison:
    """Judge two traces that Recorders wrote, or two dumps of msprobe or TroubleShooter.

    They may come from different machines. PyTorch's is the first side of the result, whichever
    folder it is in.

    Args:
        folder_a, folder_b: the folders of the two traces or dumps.
        map: name in the PyTorch trace (in the first, if both are of one framework) → name in the
            other.
        margin: how many times the measured rounding still counts as equal.

    Raises:
        UserError: not a trace; other inputs or other initial weights; too many parameters without a
            partner.
    """
    check_margin(margin)
    a, b, notes = read_pair(Path(folder_a), Path(folder_b))
    if b.framework == "torch" and a.framework != "torch":
        a, b = b, a  # names are those of PyTorch
    names = (a.framework, b.framework)
    sides = names if names[0] != names[1] else (f"{names[0]} A", f"{names[1]} B")
    found = judge_traces(a, b, JudgingSettings(margin, serialize_map(map), sides))
    return replace(found, notes=(*notes, *found.notes))


def run_workers(
    folder: Path, job: JsonObject, infos: Sequence[BackendInfo], arrays: Sequence[NDArray[Any]]
) -> None:
    """Run both workers until they end; they leave their traces in ``folder``, where earlier ones
    are deleted.

    Raises:
        UserError: one failed, or they took too long.
    """
    for left in ("weights", ".weights", "a", "b"):  # left by an earlier comparison
        if (folder / left / HEAD).exists():
            shutil.rmtree(folder / left)
    write_json(folder / "job.json", job)
    with (folder / "inputs.npz").open("wb") as file:
        np.savez(file, **{f"{i:04d}": array for i, array in enumerate(arrays)})
    (folder / SIZE).unlink(missing_ok=True)

    def make_launch(side: int, threads: int) -> Launch:
        """Return how the worker of a side, 0 or 1, is started."""
        return Launch(
            python_argv("-m", "dualml.parity.models.worker", str(folder), "ab"[side]),
            {**infos[side].environ(threads), COMPARING_VARIABLE: "1"},
            folder / f"{'ab'[side]}.log",
            infos[side].preload,
        )

    timeout, cores = job["timeout"], usable_cores()
    watch = partial(supervise, on_event=lambda rank, event: None, limit=timeout, silence=timeout)
    # Both at once, unless the first one says that the model is large.
    ended = watch([make_launch(side, max(1, cores // 2)) for side in range(2)])
    if ended.code or ended.reason:
        raise UserError(describe_failure(ended, folder, timeout))
    if ended.results[1].get("deferred"):
        write_json(folder / SIZE, {"together": True})
        ended = replace(watch([make_launch(1, cores)]), rank=1)
        if ended.code or ended.reason:
            ended = replace(ended, results={1 + rank: r for rank, r in ended.results.items()})
            raise UserError(describe_failure(ended, folder, timeout))


def search_causes(folder: Path, info: BackendInfo, timeout: float) -> dict[str, Any] | None:
    """Search for the causes of the difference in a process of its own.

    Returns:
        The explanation; None if the search itself failed, which is no verdict.
    """
    launch = Launch(
        [*python_argv(), "-m", "dualml.parity.causes.explainer", str(folder)],
        # Thousands of small calls: a second thread would only spin and disturb other work.
        {**info.environ(1), COMPARING_VARIABLE: "1"},
        folder / "explainer.log",
        info.preload,
    )
    for left in (FATAL, TRYING, RESULT):  # left by an earlier comparison
        (folder / left).unlink(missing_ok=True)
    for _ in range(ATTEMPTS):
        ended = supervise([launch], lambda rank, event: None, limit=timeout, silence=timeout)
        if not (ended.code < 0 and (folder / TRYING).exists()):
            break
        # A mutation made a kernel crash: search again without it.
        with (folder / FATAL).open("a") as file:
            file.write((folder / TRYING).read_text() + "\n")
    if ended.code or ended.reason or not (folder / RESULT).exists():
        return None
    explanation: dict[str, Any] = read_json(folder / RESULT)
    return explanation


def describe_failure(ended: GroupResult, folder: Path, timeout: float) -> str:
    """Describe why the workers failed."""
    label, log = FRAMEWORKS[ended.rank], folder / f"{'ab'[ended.rank]}.log"
    result = ended.results.get(ended.rank)
    if result is not None:
        reason = str(result["reason"])
        of_both = "without a partner" in reason or "map: " in reason
        return reason if of_both else f"{label}: {reason}"
    if ended.reason and "time limit" in ended.reason:
        return f"{label} {ended.reason}; give it more with timeout="
    why = ended.reason or describe_exit(ended.code)
    if ended.code == -signal.SIGKILL:
        why += (
            ", as the system does when memory runs out; a smaller batch takes less, and so does a "
            "comparison without an optimizer, or with loss='none' (forward only)"
        )
    return "; ".join([f"{label} {why}", *last_lines(log)])


def require_frameworks() -> list[BackendInfo]:
    """Return the backends of both frameworks.

    Raises:
        UserError: one is missing, with the command that installs it.
    """
    known = backends()
    missing = [known[name] for name in FRAMEWORKS if not known[name].installed()]
    if missing:
        names = " and ".join(f"{info.framework} ({info.install})" for info in missing)
        raise UserError(f"both frameworks are needed to compare models; install {names}")
    return [known[name] for name in FRAMEWORKS]
