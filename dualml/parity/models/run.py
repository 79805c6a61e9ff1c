"""The parent's side: describe the job, own the two workers, judge what they left."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.backend import BackendInfo, backends
from dualml.errors import UserError, nearest
from dualml.files import read_json, write_json
from dualml.launch.process import Launch
from dualml.launch.supervise import Ended, died, last_lines, supervise
from dualml.machine import python, usable_cores
from dualml.optim import rule_from
from dualml.parity.models.comparison import Comparison, Note
from dualml.parity.models.guesses import better
from dualml.parity.models.judge import MARGIN, judge
from dualml.parity.models.mapping import Asked
from dualml.parity.models.recorder import DRAWS
from dualml.parity.models.subject import INSIDE, subject
from dualml.parity.models.trace import HEAD, read_trace
from dualml.parity.models.worker import check_targets

FRAMEWORKS = ("torch", "mindspore")
LOSSES = ("cross_entropy", "mse", "probe", "none")
TIMEOUT = 300.0
#: Seconds for the search of a cause, and what it leaves in the folder.
BUDGET_S = 30.0
RESULT = "explanation.json"
MOST_STEPS = 100_000  # every step keeps all of the model's tensors


def compare(
    torch_module: Any,
    mindspore_cell: Any,
    inputs: Any,
    *,
    targets: Any = None,
    loss: Any = None,
    optimizer: Any = None,
    steps: int = 1,
    map: Asked | None = None,
    train: bool = True,
    seed: int = 0,
    margin: float = MARGIN,
    draws: int = DRAWS,
    timeout: float = TIMEOUT,
    folder: str | Path | None = None,
) -> Comparison:
    """Run a PyTorch module and its MindSpore port on the same weights and the same batch.

    Each framework runs in a process of its own, on the CPU. The module's initial weights and
    buffers are copied into the cell; then both make ``steps`` steps on the batch, and every
    module's output, the loss, the gradients, the weights and the optimizer's state are compared
    with what rounding does to each side when its weights are moved by units in the last place.

    Args:
        torch_module, mindspore_cell: a class or a function without arguments, or
            ``"module:Name"`` or ``"file.py:Name"``.
        inputs: an array, or several in the order of ``forward``; numbers become float32.
        targets: what the loss is given beside the outputs.
        loss: ``"cross_entropy"`` (of the first output, mean), ``"mse"``, ``"probe"`` (the outputs,
            weighted with fixed normal numbers; the default, needs no targets), ``"none"`` (forward
            alone), or a pair of functions of ``(outputs, targets)``, PyTorch's first.
        optimizer: ``{"name": "adam", "lr": 1e-3}`` as in an experiment (dualml's own, the same
            rule on both sides), or a pair of functions of the list of parameters. None: no update.
        steps: how many, all on this batch.
        map: PyTorch's name → MindSpore's name, or ``(name, "transpose")``, see
            `dualml.parity.models.mapping`.
        train: training mode, as opposed to evaluation.
        margin: how many times the measured rounding is still equal.
        draws: repetitions that measure it.
        timeout: seconds for all of it.
        folder: keep both traces there (``a`` PyTorch, ``b`` MindSpore).

    Raises:
        UserError: what cannot be compared, with the remedy.
    """
    if os.environ.get(INSIDE):
        raise UserError(
            "compare() was called while a worker imported this file; put the call under "
            'if __name__ == "__main__":'
        )
    if not (1 <= steps <= MOST_STEPS and 1 <= draws <= MOST_STEPS and 0 < timeout < math.inf):
        raise UserError(
            f"steps and draws >= 1 and at most {MOST_STEPS:,}, timeout > 0; received "
            f"steps={steps}, draws={draws}, timeout={timeout}"
        )
    check_margin(margin)
    if steps > 1 and optimizer is None:
        raise UserError(f"steps={steps} needs an optimizer: without one all steps are the first")
    arrays = batch(inputs, "inputs")
    target = None if targets is None else numbers(targets, "targets")
    kinds = losses(loss, target)
    infos = installed()
    updates = optimizers(optimizer)
    models = [subject(torch_module, "torch_module"), subject(mindspore_cell, "mindspore_cell")]
    sides = {
        side: {"label": info.name, "package": info.package, "model": model, "loss": kind,
               "optimizer": update}
        for side, info, model, kind, update in zip("ab", infos, models, kinds, updates, strict=True)
    }  # fmt: skip
    job = {
        "sides": sides, "map": given(map), "steps": steps, "targets": target is not None,
        "train": train, "seed": seed,
        "draws": draws, "timeout": timeout, "margin": margin, "budget": min(BUDGET_S, timeout),
        "path": [str(Path(place or ".").resolve()) for place in sys.path],
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="dualml-compare-") as temporary:
        where = Path(temporary if folder is None else folder)
        where.mkdir(parents=True, exist_ok=True)
        batches = [*arrays, *([] if target is None else [target])]
        found = once(where, job, infos, batches)
        if partners := better(found, found.explanation):
            job = {**job, "map": {**given(map), **partners}}
            found = once(where, job, infos, batches)
            pairs = ", ".join(f"{x} = {y}" for x, y in partners.items())
            found = replace(found, notes=(Note("exchanged", {"pairs": pairs}), *found.notes))
        return found


def once(
    folder: Path, job: dict[str, Any], infos: Sequence[BackendInfo], arrays: Sequence[NDArray[Any]]
) -> Comparison:
    """Both sides, the verdict, and what explains it."""
    work(folder, job, infos, arrays)
    a, b = (read_trace(folder / side) for side in "ab")
    found = judge(a, b, margin=job["margin"], asked=job["map"], sides=FRAMEWORKS)
    counted = found.first is None or found.first.kind != "outputs"  # else nothing to explain
    if found.verdict == "different" and a.operations and not a.raised and counted:
        found = replace(found, explanation=search(folder, infos[0], job["timeout"]))
    return found


def compare_traces(
    folder_a: str | Path, folder_b: str | Path, *, map: Asked | None = None, margin: float = MARGIN
) -> Comparison:
    """Judge two traces that Recorders wrote, perhaps on different machines.

    Args:
        map: name in the PyTorch trace (in the first, where both are of one framework) → the other.

    Raises:
        UserError: not a trace; other inputs or other initial weights.
    """
    check_margin(margin)
    a, b = read_trace(Path(folder_a)), read_trace(Path(folder_b))
    if b.framework == "torch" and a.framework != "torch":
        a, b = b, a  # names are PyTorch's
    names = (a.framework, b.framework)
    sides = names if names[0] != names[1] else (f"{names[0]} A", f"{names[1]} B")
    return judge(a, b, margin=margin, asked=given(map), sides=sides)


def check_margin(margin: float) -> None:
    if not 0 < margin < math.inf:
        raise UserError(f"margin must be a finite number above 0; received {margin}")


def work(
    folder: Path, job: dict[str, Any], infos: Sequence[BackendInfo], arrays: Sequence[NDArray[Any]]
) -> None:
    """Run both workers to their end.

    Raises:
        UserError: one failed, or they took too long.
    """
    for left in ("weights", ".weights", "a", "b"):  # of an earlier comparison
        if (folder / left / HEAD).exists():
            shutil.rmtree(folder / left)
    write_json(folder / "job.json", job)
    with (folder / "inputs.npz").open("wb") as file:
        np.savez(file, **{f"{i:04d}": array for i, array in enumerate(arrays)})
    threads = max(1, usable_cores() // 2)  # both run at once
    launches = [
        Launch(
            python("-m", "dualml.parity.models.worker", str(folder), side),
            {**info.environ(threads), INSIDE: "1"},
            folder / f"{side}.log",
            info.preload,
        )
        for side, info in zip("ab", infos, strict=True)
    ]
    timeout = job["timeout"]
    ended = supervise(launches, lambda rank, event: None, limit=timeout, silence=timeout)
    if ended.code or ended.reason:
        raise UserError(failure(ended, folder, timeout))


def search(folder: Path, info: BackendInfo, timeout: float) -> dict[str, Any] | None:
    """What explains the difference; None where the search itself failed, which is no verdict."""
    launch = Launch(
        [*python(), "-m", "dualml.parity.causes.explainer", str(folder)],
        # Thousands of small calls: a second thread would spin beside them, and beside other work.
        {**info.environ(1), INSIDE: "1"},
        folder / "explainer.log",
        info.preload,
    )
    ended = supervise([launch], lambda rank, event: None, limit=timeout, silence=timeout)
    if ended.code or ended.reason or not (folder / RESULT).exists():
        return None
    explanation: dict[str, Any] = read_json(folder / RESULT)
    return explanation


def failure(ended: Ended, folder: Path, timeout: float) -> str:
    label, log = FRAMEWORKS[ended.rank], folder / f"{'ab'[ended.rank]}.log"
    result = ended.results.get(ended.rank)
    if result is not None:
        reason = str(result["reason"])
        of_both = "without a partner" in reason or "map: " in reason
        return reason if of_both else f"{label}: {reason}"
    if ended.reason and "time limit" in ended.reason:
        return f"{label} {ended.reason}; give it more with timeout="
    why = ended.reason or died(ended.code)
    return "; ".join([f"{label} {why}", *last_lines(log)])


def installed() -> list[BackendInfo]:
    """Raises: UserError with the command that installs what is missing."""
    known = backends()
    missing = [known[name] for name in FRAMEWORKS if not known[name].installed()]
    if missing:
        names = " and ".join(f"{info.framework} ({info.install})" for info in missing)
        raise UserError(f"both frameworks are needed to compare models; install {names}")
    return [known[name] for name in FRAMEWORKS]


def batch(inputs: Any, what: str) -> list[NDArray[Any]]:
    if isinstance(inputs, Mapping):
        raise UserError(f"{what} must be arrays in the order of forward's arguments; not a dict")
    # A list of numbers, or of lists of them, is one array.
    several = isinstance(inputs, tuple) or (
        isinstance(inputs, list)
        and not all(isinstance(one, int | float | list | tuple) for one in inputs)
    )
    arrays = [numbers(one, what) for one in (inputs if several else [inputs])]
    if not arrays:
        raise UserError(f"{what}: at least one array")
    return arrays


def numbers(value: Any, what: str) -> NDArray[Any]:
    """A NumPy array of float32, int64 or bool."""
    if not isinstance(value, np.ndarray | list | tuple | int | float | np.generic):
        kind = f"{type(value).__module__.partition('.')[0]} {type(value).__name__}"
        raise UserError(f"{what} must be NumPy arrays; received a {kind}")
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind != "b":
        raise UserError(f"{what} must hold numbers; received dtype {array.dtype}")
    return array


def losses(loss: Any, target: NDArray[Any] | None) -> list[Any]:
    """For each side a name or a subject."""
    if loss is None or isinstance(loss, str):
        word = loss or "probe"
        if word not in LOSSES:
            raise UserError(f"unknown loss {word!r}{nearest(word, LOSSES)}; or a pair of functions")
        if word in ("cross_entropy", "mse"):
            check_targets(word, target)
        elif target is not None:
            raise UserError(f"loss {word!r} takes no targets; say which loss, or leave them out")
        return [word, word]
    return pair_of(loss, "loss", "of (outputs, targets)")


def optimizers(optimizer: Any) -> list[Any]:
    if optimizer is None:
        return [None, None]
    if isinstance(optimizer, Mapping):
        rule_from(optimizer)
        return [{"rule": dict(optimizer)}] * 2
    return pair_of(optimizer, "optimizer", "of the list of parameters")


def pair_of(pair: Any, what: str, of: str) -> list[Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise UserError(
            f"{what} must be a pair of functions {of}, PyTorch's first; "
            f"received {type(pair).__name__}"
        )
    return [subject(one, f"{what}[{i}]") for i, one in enumerate(pair)]


def given(asked: Asked | None) -> dict[str, Any]:
    return {name: p if isinstance(p, str) else list(p) for name, p in (asked or {}).items()}
