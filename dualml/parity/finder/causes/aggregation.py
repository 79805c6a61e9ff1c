"""Hypotheses about an aggregated gradient, when each rank's own gradient is correct."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dualml.parity.finder.causes.base import (
    HALVES,
    ROUGH,
    Arrays,
    Hypothesis,
    Observation,
    half_precision_tensors,
    scaled_tensors,
)
from dualml.parity.finder.causes.messages import changed_messages
from dualml.parity.finder.causes.rank_weights import factors_of_ranks
from dualml.parity.finder.causes.relations import gradient_functions, tensor_factors
from dualml.parity.transforms import round_to_half


def hypotheses(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypotheses about an aggregated gradient that deviates: wrong weights of ranks,
    changed, missing or rounded messages, an old gradient, or a function of the right one."""
    size = suspect.world_size
    for factor in (float(size), 1 / size):
        cause = "sum-not-mean" if factor > 1 else "averaged-twice"
        yield Hypothesis(cause, suspect.scale_all(factor), {"factor": factor})
    yield from unsynchronised_ranks(suspect)
    if all(suspect.reference(s, q, "gradient") for s, _ in suspect.violations for q in range(size)):
        yield from factors_of_ranks(suspect)
        yield from changed_messages(suspect)
        yield from half_precision_messages(suspect)
        yield from unsent_parameters(suspect)
    yield Hypothesis("stale-gradient", lambda s, r: suspect.previous_gradient(s))
    yield from half_precision_tensors(suspect)
    yield scaled_tensors(suspect, "scaled-gradient")
    yield Hypothesis("not-aggregated", suspect.scale_all(0), {"found": "zeros"})
    yield from tensor_factors(suspect)
    yield from gradient_functions(suspect)


def rank_gradients(suspect: Observation, step: int) -> list[Arrays]:
    """Return, for each rank, parameter name → the reference's gradient before the aggregation,
    already weighted for the sum over ranks."""
    return [suspect.reference(step, rank, "gradient") for rank in range(suspect.world_size)]


def unsynchronised_ranks(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that ranks continue with their own gradient, scaled for the sum or
    not."""
    for for_sum in (True, False):

        def predict(step: int, rank: int, for_sum: bool = for_sum) -> Arrays:
            whole = 1.0 if for_sum else suspect.batch_share(step, rank)
            return {n: a / whole for n, a in suspect.reference(step, rank, "gradient").items()}

        yield Hypothesis("unsynchronised-rank", predict, {"ranks": suspect.violating_ranks})


def half_precision_messages(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that every rank sends its gradient in half precision; the sum is also
    rounded, or not."""

    def predict(step: int, rank: int, kind: str, again: bool) -> Arrays:
        parts = rank_gradients(suspect, step)
        total = {n: np.asarray(sum(round_to_half(p[n], kind) for p in parts)) for n in parts[0]}
        return {n: round_to_half(a, kind) if again else a for n, a in total.items()}

    for kind in HALVES:
        for again in (True, False):
            yield Hypothesis(
                "half-precision",
                partial(predict, kind=kind, again=again),
                {"type": kind},
                roughness=ROUGH,
            )


def unsent_parameters(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that some tensors, those nearer to the rank's own gradient, are not
    aggregated; nothing if these are none or all."""
    step, rank = suspect.violations[0]
    alone, whole, off = suspect.reference(step, rank, "gradient"), suspect.expected(step, rank), []
    for name, seen in suspect.recorded(step, rank).items():
        same = seen.shape == alone[name].shape
        if same and np.abs(seen - alone[name]).sum() < np.abs(seen - whole[name]).sum():
            off.append(name)
    if off and len(off) < len(whole):

        def predict(step: int, rank: int) -> Arrays:
            own = suspect.reference(step, rank, "gradient")
            return {name: own[name] for name in off}

        yield Hypothesis("not-aggregated", predict, {"parameters": off})
