"""One factor between all gradients of two traces, and which number of the training it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualml.parity.models.gap import gap
from dualml.parity.ranks.evidence import RankEvidence, is_near, total_norm

#: Smallest power of two that is taken for the scale of a loss.
MIN_LOSS_SCALE = 64
#: Largest residue of an array that has one factor, relative to the array.
ONE_FACTOR = 1e-4
#: Relative tolerance of the norm to which gradients are clipped: 1e-6 is added to what divides.
NORM_RTOL = 1e-4


@dataclass(frozen=True)
class RankFinding:
    """The arrays that a hypothesis about a mistake explains.

    Attributes:
        explained: number of arrays that it predicts up to rounding, or, if not `is_predicted`,
            that fit.
        phase: the phase of these arrays.
        values: placeholder of the hypothesis's sentence → value.
        names: names of the arrays that it is about.
        is_predicted: whether it was tested by predicting arrays; else it only fits which of them
            differ.
    """

    explained: int
    phase: str
    values: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    is_predicted: bool = True


def find_factor(evidence: RankEvidence) -> tuple[float, int] | None:
    """Return the factor by which the reference's gradients give the suspect's, and how many
    gradients share it; None if it is not shared by more than half of those that differ."""
    factors = []
    for x, y in evidence.pairs("gradient").values():
        p, q = x.astype(np.float64).ravel(), y.astype(np.float64).ravel()
        size = float(p @ p)
        if not size or not math.isfinite(size) or not np.isfinite(q).all():
            continue
        factor = float(p @ q) / size
        if factor and gap(factor * p, q) < ONE_FACTOR:
            factors.append((math.sqrt(size), factor))
    if not factors:
        return None
    factor = max(factors)[1]  # of the largest gradient: it is rounded least
    shared = sum(is_near(one, factor, ONE_FACTOR) for _, one in factors)
    return (factor, shared) if 2 * shared > len(evidence.names_outside("gradient")) else None


def explain_factor(
    evidence: RankEvidence, find_meaning: Callable[[RankEvidence, float], dict[str, Any] | None]
) -> RankFinding | None:
    """Return what is explained by one factor between all gradients; None if there is no factor, if
    it is 1, or if it is not the number that ``find_meaning`` looks for.

    Args:
        find_meaning: called with the evidence and the factor; returns the values of the sentence,
            or None if the factor is another number.
    """
    found = find_factor(evidence)
    if found is None or is_near(found[0], 1.0, ONE_FACTOR):
        return None
    values = find_meaning(evidence, found[0])
    if values is None:
        return None
    predicted = {name: found[0] * x for name, (x, _) in evidence.pairs("gradient").items()}
    explained = evidence.count_agreeing("gradient", predicted)
    names = tuple(evidence.names_outside("gradient"))
    said = {"factor": f"{found[0]:.6g}", **values}
    return RankFinding(explained, "gradient", said, names) if explained else None


def summed_over_ranks(evidence: RankEvidence, factor: float) -> dict[str, Any] | None:
    """Return ``n``, the suspect's number of ranks, if the factor is that number; else None."""
    ranks = evidence.suspect.ranks
    return {"n": ranks} if ranks > 1 and is_near(factor, ranks) else None


def divided_by_ranks(evidence: RankEvidence, factor: float) -> dict[str, Any] | None:
    """Return ``n``, the suspect's number of ranks, if the factor is one divided by it; else
    None."""
    ranks = evidence.suspect.ranks
    return {"n": ranks} if ranks > 1 and is_near(factor * ranks, 1.0) else None


def summed_micro_batches(evidence: RankEvidence, factor: float) -> dict[str, Any] | None:
    """Return ``n``, the suspect's number of micro-batches, if the factor is that number divided by
    the reference's, or that number if both have as many; else None."""
    own, other = evidence.suspect.micro_batches, evidence.reference.micro_batches
    # With as many on both sides, only one may not divide.
    expected = own / other if own != other else own
    return {"n": own} if expected != 1 and is_near(factor, expected) else None


def divided_micro_batches(evidence: RankEvidence, factor: float) -> dict[str, Any] | None:
    """Return ``n``, the suspect's number of micro-batches, if the factor is the reference's number
    divided by it, or one divided by it if both have as many; else None."""
    own, other = evidence.suspect.micro_batches, evidence.reference.micro_batches
    expected = other / own if own != other else 1 / own
    return {"n": own} if expected != 1 and is_near(factor, expected) else None


def divided_by_full_window(evidence: RankEvidence, factor: float) -> dict[str, Any] | None:
    """Return ``n`` and ``full``, the suspect's micro-batches in this step and the most that a step
    has, if the factor is the first divided by the second: a last, shorter window of accumulation
    is divided like the others. Else None."""
    side = evidence.suspect
    own = side.count_micro_batches(evidence.step)
    full = max(side.count_micro_batches(step) for step in range(1, side.trace.steps + 1))
    return {"n": own, "full": full} if own < full and is_near(factor, own / full) else None


def summed_over_batch(evidence: RankEvidence, factor: float) -> dict[str, Any] | None:
    """Return ``n``, the number of samples, and ``summing``, the side that sums over them, if the
    factor is that number or one divided by it; else None."""
    rows = evidence.rows()
    if rows < 2 or not (is_near(factor, rows) or is_near(factor * rows, 1.0)):
        return None
    summed = evidence.suspect if factor > 1 else evidence.reference
    return {"n": rows, "summing": summed.name}


def other_token_count(evidence: RankEvidence, factor: float) -> dict[str, Any] | None:
    """Return ``own`` and ``rest``, two numbers of tokens whose ratio rest / own is the factor:
    those of the two sides, or that of a side and 1; None if it is no such ratio."""
    sides = (evidence.reference, evidence.suspect)
    counts = [sum(side.weights_of_losses(evidence.step).values()) for side in sides]
    mine, other = counts[1], counts[0]
    for own, rest in ((mine, other), (mine, 1.0), (1.0, other), (1.0, mine), (other, 1.0)):
        if own and rest and own != rest and is_near(factor, rest / own):
            return {"own": f"{own:g}", "rest": f"{rest:g}"}
    return None


def loss_scale_left(evidence: RankEvidence, factor: float) -> dict[str, Any] | None:
    """Return ``scale``, the scale of the loss, and ``scaling``, the side that keeps it in its
    gradients, if the factor or one divided by it is a power of two of at least `MIN_LOSS_SCALE`;
    else None."""
    scale = max(factor, 1 / factor) if factor > 0 else 0.0
    exponent = round(math.log2(scale)) if scale else 0
    if scale < MIN_LOSS_SCALE or not is_near(scale, 2.0**exponent):
        return None
    scaled = evidence.suspect if factor > 1 else evidence.reference
    return {"scale": f"{2.0**exponent:g}", "scaling": scaled.name}


def clipped_norm(evidence: RankEvidence, factor: float) -> dict[str, Any] | None:
    """Return ``norm`` and ``before``, the norm of all gradients of the suspect and of the
    reference, if the first has two significant digits and is smaller, and the factor is their
    ratio: the suspect clips. Else None."""
    every = evidence.pairs_of_all()
    if not every:
        return None
    before, after = (total_norm(pair[side] for pair in every.values()) for side in (0, 1))
    plain = float(f"{after:.2g}")
    if not 0 < after < before or not is_near(after, plain, NORM_RTOL):
        return None
    if not is_near(factor, after / before, NORM_RTOL):
        return None
    return {"norm": f"{plain:g}", "before": f"{before:.4g}"}


def unknown_factor(evidence: RankEvidence, factor: float) -> dict[str, Any] | None:
    """Return an empty dict for every factor: nothing but the factor is known."""
    return {}
