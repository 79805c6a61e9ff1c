"""Compare two traces of which one or both were recorded on several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dualml.experiment.comparison import Note
from dualml.parity.models.comparison import ModelComparison
from dualml.parity.models.trace import HEAD, Trace, count_calls, read_trace
from dualml.parity.ranks.evidence import ROUNDING, RankEvidence, TraceSide
from dualml.parity.ranks.gathering import RANKS, gather_ranks
from dualml.parity.ranks.hypotheses import describe_hypotheses, run_hypotheses
from dualml.parity.ranks.micro_batches import join_calls
from dualml.parity.ranks.rank_files import RankRecording, find_parts, has_ranks, read_ranks
from dualml.parity.ranks.refusals import find_other_inputs
from dualml.parity.ranks.settings import describe_starts
from dualml.parity.ranks.shards import find_other_copies
from dualml.parity.ranks.unpredicted import describe_places


def read_whole_trace(folder: Path) -> Trace:
    """Read the whole trace in a folder; if there are only the traces of ranks, gather these in
    memory.

    Raises:
        UserError: there is no trace, or traces of ranks that do not fit together.
    """
    if not (folder / HEAD).is_file() and has_ranks(folder):
        return gather_ranks(read_ranks(folder))
    return read_trace(folder)


def read_recordings(folder: Path, trace: Trace) -> list[RankRecording]:
    """Return what each rank recorded of a whole trace in a folder; empty if one process recorded
    it, or if the ranks' folders are not there."""
    return read_ranks(folder) if RANKS in trace.environment and has_ranks(folder) else []


def align_batches(
    a: Trace, b: Trace, recordings: tuple[Sequence[RankRecording], Sequence[RankRecording]]
) -> tuple[Trace, Trace]:
    """Return two traces with equally many calls of the model in a step and, if possible, with the
    batch in one order.

    If the numbers of calls differ, the calls of both are joined. If the inputs differ, the ranks'
    samples are tried in turn (see `gather_folder`), and kept if the inputs then agree.

    Args:
        recordings: the traces of the ranks of each side; empty for one process.
    """
    if count_calls(a) != count_calls(b):
        a, b = join_calls(a), join_calls(b)
    traces = [a, b]
    for at, own in enumerate(recordings):
        if len(own) > 1 and find_other_inputs(*traces) is not None:
            interleaved = gather_ranks(own, interleaved=True)
            if find_other_inputs(interleaved, traces[1 - at]) is None:
                traces[at] = interleaved
    return traces[0], traces[1]


def explain_comparison(
    found: ModelComparison,
    traces: tuple[Trace, Trace],
    recordings: tuple[Sequence[RankRecording], Sequence[RankRecording]],
    calls: tuple[int, int] = (0, 0),
) -> ModelComparison:
    """Return a comparison with notes about the known mistakes that explain it, about optimizers
    that start differently, and about ranks that do not have the same weights; an ``equal`` one
    becomes ``different`` in the last two cases. One that is not comparable, or whose
    reason is ``raised``, is returned as it is.

    Args:
        traces: the two traces that were judged.
        recordings: the traces of their ranks; empty for one process.
        calls: how often each side called the model in a step, before `align_batches` joined the
            calls; 0: as in the traces.
    """
    names = [{p["a"]: p["a"] for p in found.mapping}, {p["a"]: p["b"] for p in found.mapping}]
    changes = {p["a"]: p["change"] for p in found.mapping if p["change"]}
    first, second = (
        TraceSide(*side)
        for side in zip(found.sides, traces, recordings, names, ({}, changes), calls, strict=True)
    )
    notes = list(describe_copies((first, second)))
    if found.verdict == "equal" and notes:
        return replace(
            found, verdict="different", reason="ranks_apart", notes=(*notes, *found.notes)
        )
    recorded = first.trace.start is not None and second.trace.start is not None
    starts = describe_starts((first, second)) if recorded else []
    if found.verdict == "equal" and starts:
        return replace(
            found, verdict="different", reason="starts_apart", notes=(*starts, *found.notes)
        )
    if found.verdict != "different" or found.reason == "raised":
        return found
    steps = [step for step, phase, _ in found.outside if phase != "parameters"]
    step = max(min(steps, default=1), 1)
    outside = [(phase, name) for s, phase, name in sorted(found.outside) if s == step]
    orders = [(first, second), (second, first)]
    evidences = [RankEvidence(x, y, outside, step, found.margin) for x, y in orders]
    said = describe_hypotheses(run_hypotheses(evidences))
    places = [] if said or starts else describe_places(evidences[0])
    return replace(found, notes=(*starts, *said, *notes, *places, *found.notes))


def describe_copies(sides: Sequence[TraceSide]) -> list[Note]:
    """Return a note for each side on which ranks that have the same parameter have different
    numbers in it, beyond rounding, with the first step after which they do (0: before the first);
    empty if none do."""
    notes = []
    for side in sides:
        for step in range(side.trace.steps + 1 if side.recordings else 0):
            worst = find_worst_copy(side, step)
            if worst is not None:
                name, rank, far = worst
                key = "ranks_copies" if step else "ranks_copies_at_start"
                values = {"side": side.name, "step": step, "tensor": name, "rank": rank}
                notes.append(Note(key, {**values, "distance": f"{far:.1e}"}))
                break
    return notes


def find_worst_copy(side: TraceSide, step: int) -> tuple[str, int, float] | None:
    """Return (parameter, rank, relative distance) of the copy of a trained parameter that is
    farthest from the first rank's after a step (0: before the first); None if all are equal up to
    rounding."""
    phase = "update" if step else "parameters"
    rows = []
    trained = [t.name for one in side.recordings for t in one.trace.tensors if t.trained]
    for name in dict.fromkeys(trained):
        parts = find_parts(side.recordings, phase, step, name)
        allowed = max(10 * side.trace.envelope_width(phase, step, name), ROUNDING)
        if len(parts) > 1:
            apart = {r: far for r, far in find_other_copies(parts).items() if far > allowed}
            rows += [(far, name, rank) for rank, far in apart.items()]
    if not rows:
        return None
    far, name, rank = max(rows)
    return name, rank, far
