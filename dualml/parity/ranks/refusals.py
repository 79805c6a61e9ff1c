"""Why two traces have other batches or other initial weights: known mistakes with ranks.

Such traces are refused; what is known of the reason is added to the refusal.
"""

from __future__ import annotations

from collections.abc import Sequence

from dualml.parity.models.gap import is_bit_identical
from dualml.parity.models.messages import format_message
from dualml.parity.models.trace import Trace
from dualml.parity.ranks.evidence import TraceSide
from dualml.parity.ranks.rank_files import RankRecording
from dualml.parity.ranks.shards import cut_shard, find_other_copies, is_sharded


def find_refusal(a: TraceSide, b: TraceSide) -> str:
    """Return a sentence in English about the mistake that explains why two traces cannot be
    compared; empty if none is known."""
    for side, other in ((b, a), (a, b)):
        for text in (
            explain_repeated_batches(side, other),
            explain_shared_batches(side),
            explain_initial_weights(side, other),
        ):
            if text:
                return text
    if a.ranks != b.ranks and find_other_inputs(a.trace, b.trace) is not None:
        return format_message("en", "refused.ranks", a=a.name, b=b.name, m=a.ranks, n=b.ranks)
    return ""


def find_other_inputs(a: Trace, b: Trace) -> int | None:
    """Return the first step, from 1, in which two traces have different inputs; None if there is
    none."""
    pairs = enumerate(zip(a.inputs, b.inputs, strict=False), 1)
    return next((step for step, (x, y) in pairs if x != y), None)


def explain_repeated_batches(side: TraceSide, other: TraceSide) -> str:
    """Return a sentence in English if a side trains on an earlier step's batch again where the
    other side gets a new one: its sampler has the same order in every epoch. Else empty."""
    step = find_other_inputs(side.trace, other.trace)
    if step is None:
        return ""
    mine, theirs = side.trace.inputs, other.trace.inputs
    earlier = [s for s in range(1, step) if mine[s - 1] == mine[step - 1]]
    if not earlier or theirs[step - 1] in theirs[: step - 1]:
        return ""
    values = {"side": side.name, "step": step, "earlier": earlier[0]}
    return format_message("en", "refused.epoch", **values)


def explain_shared_batches(side: TraceSide) -> str:
    """Return a sentence in English if all ranks of a side train whole models on the same batch in
    the first step; else empty."""
    recordings = side.recordings
    step = 1
    if len(recordings) < 2 or any(len(one.trace.inputs) < step for one in recordings):
        return ""
    inputs = [one.trace.inputs[step - 1] for one in recordings]
    if any(one != inputs[0] for one in inputs) or has_shards(recordings):
        return ""
    return format_message("en", "refused.same_batch", side=side.name, n=len(recordings))


def has_shards(recordings: Sequence[RankRecording]) -> bool:
    """Return whether ranks have parts of a model: shards, or tensors of different names."""
    names = [{t.name for t in one.trace.tensors} for one in recordings]
    return any(one.facts.places for one in recordings) or any(n != names[0] for n in names)


def explain_initial_weights(side: TraceSide, other: TraceSide) -> str:
    """Return a sentence in English if ranks of a side begin with other weights than its first rank:
    their copies differ, or their shards are not those of the other side's weights while the first
    rank's is. Else empty."""
    if len(side.recordings) < 2:
        return ""
    strange: set[int] = set()
    for name in other.trace.initial_parameters():
        whole = other.find_array("parameters", 0, name)
        parts = side.find_parts("parameters", 0, name)
        if whole is None or len(parts) < 2:
            continue
        strange |= set(find_other_copies(parts))
        if is_sharded(parts) and parts[0].place is not None and parts[0].place.shape == whole.shape:
            fits = [is_bit_identical(cut_shard(whole, part), part.array) for part in parts]
            strange |= {
                part.rank for part, fit in zip(parts, fits, strict=True) if fits[0] and not fit
            }
    if not strange:
        return ""
    ranks = ", ".join(map(str, sorted(strange)))
    return format_message("en", "refused.seeds", side=side.name, ranks=ranks)
