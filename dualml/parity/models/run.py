"""Parent process of a comparison: describe the job, run two workers, judge their traces."""

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

from numpy.typing import NDArray

from dualml.backend import backends
from dualml.common.errors import UserError
from dualml.common.former_members import rename_keywords
from dualml.experiment.comparison import Note
from dualml.launch.supervise import last_lines
from dualml.parity.causes.trial_guard import count_killed
from dualml.parity.engine import MAX_STRETCH
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.compiler import explain_by_compiler
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
from dualml.parity.models.lockstep.run import (
    LOCKSTEP_TIMEOUT,
    compare_blocks,
    describe_lockstep,
)
from dualml.parity.models.mapping import ParameterMap
from dualml.parity.models.model_ref import COMPARING_VARIABLE, to_import_spec
from dualml.parity.models.orientation import pair_by_orientation
from dualml.parity.models.recorded_pairs import pair_recorded_tensors
from dualml.parity.models.recorder import DRAWS
from dualml.parity.models.rotary import interleaved_maps, interleaved_names, runs_before
from dualml.parity.models.side_jobs import (
    add_functions,
    correct_frameworks,
    describe_sides,
    name_frameworks,
    require_backends,
    resolve_sides,
)
from dualml.parity.models.side_processes import run_workers, search_causes, search_compiled
from dualml.parity.models.sides import FRAMEWORKS as FRAMEWORKS
from dualml.parity.models.sides import (
    LETTERS,
    ResolvedSide,
    Side,
    label_sides,
    refuse_same_run,
)
from dualml.parity.models.trace import Trace, count_calls, read_trace
from dualml.parity.models.weights.options import WeightOptions, write_results
from dualml.parity.models.weights.pair_run import pair_for_weights, prepare_weights
from dualml.parity.patches.result import add_patch
from dualml.parity.ranks.evidence import TraceSide
from dualml.parity.ranks.explaining import align_batches, explain_comparison, read_recordings
from dualml.parity.ranks.refusals import find_refusal

TIMEOUT = 300.0
#: Seconds for the search of causes.
BUDGET_S = 45.0
MAX_STEPS = 100_000  # every step keeps all of the model's tensors
#: Frameworks whose operations are recorded wherever a model makes any.
RECORDED_FRAMEWORKS = ("torch", "mindspore")


@rename_keywords({"torch_module": "a", "mindspore_cell": "b"})
def compare(
    a: Any,
    b: Any,
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
    sides: tuple[Side, Side] = (Side(), Side()),
    weights: str | Path | WeightOptions | None = None,
    lockstep: bool = False,
    blocks: Sequence[str] | None = None,
    patch: bool = False,
) -> ModelComparison:
    """Run two models on the same weights and the same batch, and compare all that they compute.

    They may be a PyTorch module and its MindSpore port, two implementations in one framework, or
    one model in two modes, dtypes, devices or environments. Each side runs in a process of its own.
    The first side's initial weights and buffers are copied into the second. Both then make
    ``steps`` steps on the batch. Every module's output, the loss, the gradients, the weights and
    the optimizer's state are compared with the effect of rounding on each side, measured by moving
    its weights by units in the last place. Of a PyTorch and another model, PyTorch's is the first
    side of the result, whichever is passed first.

    Args:
        a, b: a class or a function without arguments, or ``"module:Name"`` or ``"file.py:Name"``.
        inputs: an array, or several in the order of ``forward``; real numbers become float32,
            integers int64.
        targets: passed to the loss together with the outputs.
        loss: ``"cross_entropy"`` (of the first output, mean), ``"mse"``, ``"probe"`` (the outputs,
            weighted with fixed normal numbers; the default, needs no targets), ``"none"`` (forward
            only), or a pair of functions of ``(outputs, targets)``, the one for ``a`` first.
        optimizer: ``{"name": "adam", "lr": 1e-3}`` as in an experiment (dualml's own, the same rule
            on both sides), or a pair of functions of the list of parameters, the one for ``a``
            first. None: no update.
        steps: number of steps, all on this batch; more than one needs an optimizer.
        map: name on the first side (PyTorch's) → name on the second, or ``(name, "transpose")``,
            see `dualml.parity.models.mapping`.
        train: training mode, as opposed to evaluation.
        seed: seed of the first side's initial weights and of the random numbers of both sides
            (Dropout).
        margin: how many rounding envelopes apart two arrays still count as equal.
        draws: number of repetitions that measure rounding, at least 1.
        timeout: seconds for each run of the two processes (a comparison may need several), and for
            the search of causes.
        folder: folder in which both traces are kept (``a`` of the first side, ``b`` of the second);
            made if needed. None: they are deleted.
        sides: how each model runs, see `dualml.parity.models.sides.Side`.
        weights: file or folder with the weights of one side, instead of initial ones; or more about
            files, see `dualml.parity.models.weights.options.WeightOptions`. With ``lockstep`` they
            are the first side's, in safetensors files.
        lockstep: compare block by block, with the weights of one block in memory at a time: for
            models of which no step fits. One step, after which an optimizer updates each block.
        blocks: with ``lockstep``, names of the first side's modules that are the blocks; a list of
            modules stands for its members. None: found.
        patch: search for a patch of the second side's source that makes both equal, see
            `dualml.parity.patches`; no file of the user's is written.

    Raises:
        UserError: the models cannot be compared, or both sides are the same; the message names the
            remedy.

    Example:
        >>> compare("net.py:Net", "net.py:Net", x, sides=(Side(), Side(mode="compile"))).sides
        ('torch eager', 'torch compile')
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
    files = weights if isinstance(weights, WeightOptions) else WeightOptions(weights)
    if patch and lockstep:
        raise UserError("--patch needs the traces of whole models; leave out --lockstep")
    in_blocks = describe_lockstep(lockstep, blocks, files, optimizer, steps, loss)
    if steps > 1 and optimizer is None:
        raise UserError(f"steps={steps} needs an optimizer: without one all steps are the first")
    arrays = to_arrays(inputs, "inputs")
    target = None if targets is None else to_array(targets, "targets")
    kinds = resolve_losses(loss, target)
    models = to_import_spec(a, "model A"), to_import_spec(b, "model B")
    known = backends()
    names = name_frameworks((a, b), models, sides)
    require_backends(names, known)
    updates = resolve_optimizers(optimizer)
    files.check()
    settings: dict[str, Any] = {
        "weights": None if lockstep else files.describe(),
        "map": serialize_map(map),
        "steps": steps,
        "targets": target is not None,
        "train": train,
        "seed": seed,
        "draws": draws,
        "timeout": timeout,
        "margin": margin,
        "budget": min(BUDGET_S, timeout / MAX_STRETCH),
        "path": [str(Path(place or ".").resolve()) for place in sys.path],
        **in_blocks,
    }
    if lockstep and timeout == TIMEOUT:
        settings["timeout"] = LOCKSTEP_TIMEOUT
    batches = [*arrays, *([] if target is None else [target])]
    with tempfile.TemporaryDirectory(prefix="dualml-compare-") as temporary:
        where = Path(temporary if folder is None else folder)
        where.mkdir(parents=True, exist_ok=True)
        while True:
            infos = require_backends(names, known)
            checked = resolve_sides(sides, infos, models, Path(temporary) / ".overlay")
            resolved = add_functions(checked, kinds, updates)
            refuse_same_run(*resolved)
            job = settings | describe_sides(resolved)
            try:
                if lockstep:
                    return compare_blocks(where, job, resolved, batches)
                job = prepare_weights(where, job, resolved, batches)
                found = compare_sides(where, job, resolved, batches)
                found = blame_compiler(where, job, resolved, batches, found)
                if patch:
                    found = add_patch(where, job, resolved, found)
                return write_results(files, where, resolved, batches, found)
            except UserError:  # perhaps a model is of another framework than its source says
                corrected = correct_frameworks(where, resolved, sides, names)
                if corrected is None:
                    raise
                names = corrected


def compare_sides(
    folder: Path,
    job: dict[str, Any],
    sides: Sequence[ResolvedSide],
    batches: Sequence[NDArray[Any]],
) -> ModelComparison:
    """Run both sides of a job, judge them, and explain a difference; return the comparison.

    If they differ, pairs of parameters that were guessed are also tried in other ways, and the
    result that agrees furthest is returned. The traces are left in ``folder``.
    """
    found = run_and_judge(folder, job, sides, batches)
    for guess in (pair_by_listing, pair_by_orientation, pair_transposed):
        if found.verdict == "different" and (others := guess(*traces(folder), job["map"])):
            found, job = retry_with_partners(folder, job, sides, batches, found, others)
    found, job = try_rotations(folder, job, sides, batches, found)
    found = add_explanation(folder, job, sides, found)
    if partners := find_better_pairing(found, found.explanation):
        job = {**job, "map": {**job["map"], **partners}}
        found = add_explanation(folder, job, sides, run_and_judge(folder, job, sides, batches))
        pairs = ", ".join(f"{x} = {y}" for x, y in partners.items())
        found = replace(found, notes=(Note("exchanged", {"pairs": pairs}), *found.notes))
    return found


def blame_compiler(
    folder: Path,
    job: dict[str, Any],
    sides: Sequence[ResolvedSide],
    batches: Sequence[NDArray[Any]],
    found: ModelComparison,
) -> ModelComparison:
    """Return the comparison ``found``, unchanged unless its verdict is ``different`` and a side is
    compiled.

    Then both sides are compared without the compiler. If they are equal, the compiler is added as
    the cause, with the smallest module that shows the difference; if not, that comparison is
    returned instead, whose cause can be searched.
    """
    compiled = [side for side in sides if side.is_compiled]
    if found.verdict != "different" or not compiled:
        return found
    plain = [side.without_compiler() for side in sides]
    if not plain[0].is_same_run(plain[1]):
        plain = list(label_sides(*plain))
        settings = {name: value for name, value in job.items() if name != "sides"}
        with tempfile.TemporaryDirectory(dir=folder, prefix=".plain-") as temporary:
            again = settings | describe_sides(plain)
            uncompiled = compare_sides(Path(temporary), again, plain, batches)
        if uncompiled.verdict != "equal":
            note = Note("uncompiled", {"sides": ", ".join(side.label for side in compiled)})
            return replace(uncompiled, notes=(note, *uncompiled.notes))
    results = {
        side.label: search_compiled(folder, letter, side, job["timeout"])
        for letter, side in zip(LETTERS, sides, strict=True)
        if side.is_compiled
    }
    return replace(found, explanation=explain_by_compiler(compiled, results))


def traces(folder: Path) -> tuple[Trace, Trace]:
    """Read and return the traces of side ``a`` and ``b`` from the folder of a comparison."""
    return read_trace(folder / "a"), read_trace(folder / "b")


def run_and_judge(
    folder: Path, job: dict[str, Any], sides: Sequence[ResolvedSide], arrays: Sequence[NDArray[Any]]
) -> ModelComparison:
    """Run both workers of a job in ``folder``, and return the comparison of their traces, without a
    search of causes."""
    pair_for_weights(folder, job, sides, arrays)
    run_workers(folder, job, sides, arrays)
    labels = sides[0].label, sides[1].label
    return judge_traces(*traces(folder), JudgingSettings(job["margin"], job["map"], labels))


def try_rotations(
    folder: Path,
    job: dict[str, Any],
    sides: Sequence[ResolvedSide],
    arrays: Sequence[NDArray[Any]],
    found: ModelComparison,
) -> tuple[ModelComparison, dict[str, Any]]:
    """Repeat a comparison that found a difference with the rows of queries and keys in the order of
    the other kind of rotary embeddings, if that may be what differs; return the comparison to use,
    with a note if that order is better, and its job."""
    candidates = []
    if found.verdict == "different":
        a, b = traces(folder)
        candidates = list(interleaved_maps(a, b, job["map"]))
        first = found.first
        if first is not None and (first.step, first.phase) == (1, "forward"):
            # What comes before queries and keys differs whatever the order of their rows.
            candidates = [one for one in candidates if not runs_before(a, first.tensor, one)]
    for partners in candidates:
        other, changed = retry_with_partners(folder, job, sides, arrays, found, partners)
        if changed is not job:
            names, change = interleaved_names(partners)
            note = Note("interleaved", {"names": names, "change": change})
            return replace(other, notes=(note, *other.notes)), changed
    return found, job


def retry_with_partners(
    folder: Path,
    job: dict[str, Any],
    sides: Sequence[ResolvedSide],
    arrays: Sequence[NDArray[Any]],
    found: ModelComparison,
    partners: Mapping[str, str | Sequence[str]],
) -> tuple[ModelComparison, dict[str, Any]]:
    """Repeat the comparison ``found`` with other parameter pairs; if both sides are equal or agree
    further then, its traces replace those in ``folder``.

    Returns:
        The better one of the two comparisons, and its job.
    """
    other_job = {**job, "map": {**job["map"], **partners}}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".listed-") as temporary:
        place = Path(temporary)
        other = run_and_judge(place, other_job, sides, arrays)
        if other.verdict != "equal" and other.reach <= found.reach:
            return found, job
        for one in ("a", "b"):
            shutil.rmtree(folder / one)
            shutil.move(place / one, folder / one)
        shutil.move(place / "job.json", folder / "job.json")
    return other, other_job


def add_explanation(
    folder: Path, job: dict[str, Any], sides: Sequence[ResolvedSide], found: ModelComparison
) -> ModelComparison:
    """Return the comparison with the causes of a difference, searched in another process.

    It is unchanged if there is no difference, if a side is compiled, or if the cause cannot be
    searched (an error, missing outputs, no recorded operations). A failed search adds a note.
    """
    if any(side.is_compiled for side in sides):
        return found  # see `blame_compiler`
    a, b = traces(folder)
    # An error explains itself if everything before it is equal; so do missing outputs.
    searchable = found.first is None or found.first.kind not in ("outputs", "raised")
    # Not by every backend; a pipeline of NumPy leaves none, and its outputs tell enough.
    recorded = a.operations and (b.operations or b.raised or b.framework in RECORDED_FRAMEWORKS)
    if found.verdict == "different" and recorded and not a.raised and searchable:
        explanation = search_causes(
            folder, sides[0], job["timeout"], job["budget"], found.distances
        )
        if explanation is None:
            said = last_lines(folder / "explainer.log")[-1:] or ["…"]
            found = replace(found, notes=(*found.notes, Note("no_search", {"why": said[0]})))
        elif killed := count_killed(folder):
            found = replace(found, notes=(*found.notes, Note("killed", {"n": killed})))
        found = replace(found, explanation=explanation)
    return found


def compare_traces(
    folder_a: str | Path,
    folder_b: str | Path,
    *,
    map: ParameterMap | None = None,
    margin: float = MARGIN,
) -> ModelComparison:
    """Compare two traces that Recorders wrote, or two dumps of msprobe or TroubleShooter.

    They may come from different machines. PyTorch's is the first side of the result, whichever
    folder it is in.

    Args:
        folder_a, folder_b: the folders of the two traces or dumps.
        map: name in the PyTorch trace (in the first, if both are of one framework) → name in the
            other.
        margin: how many rounding envelopes apart two arrays still count as equal.

    Raises:
        UserError: a folder has no trace; the two have different inputs or initial weights; too many
            parameters have no partner.
    """
    check_margin(margin)
    a, b, notes = read_pair(Path(folder_a), Path(folder_b))
    folders = Path(folder_a), Path(folder_b)
    if b.framework == "torch" and a.framework != "torch":
        a, b, folders = b, a, folders[::-1]  # names are those of PyTorch
    names = (a.framework, b.framework)
    sides = names if names[0] != names[1] else (f"{names[0]} A", f"{names[1]} B")
    ranks = read_recordings(folders[0], a), read_recordings(folders[1], b)
    calls = count_calls(a), count_calls(b)
    a, b = align_batches(a, b, ranks)
    b, asked = pair_recorded_tensors(a, b, serialize_map(map))
    try:
        found = judge_traces(a, b, JudgingSettings(margin, asked, sides))
    except UserError as error:
        why = find_refusal(*(TraceSide(*one) for one in zip(sides, (a, b), ranks, strict=True)))
        raise UserError(f"{error}. {why}" if why else str(error)) from None
    found = explain_comparison(found, (a, b), ranks, calls)
    return replace(found, notes=(*notes, *found.notes))
