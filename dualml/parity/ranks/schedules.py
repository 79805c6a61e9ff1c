"""Learning rates of two traces, and the known mistakes that make them differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.ranks.evidence import FACTOR_RTOL, RankEvidence, is_near
from dualml.parity.ranks.factors import RankFinding

#: How many times as fast a schedule may run.
MAX_SPEED = 64
#: Rates of a sentence.
MAX_SHOWN_RATES = 4


def explain_rates(
    evidence: RankEvidence,
    find_meaning: Callable[[RankEvidence, list[float], list[float]], dict[str, Any] | None],
) -> RankFinding | None:
    """Return what the learning rates of both sides explain: the differing updates that follow from
    the reference's with the suspect's rates. None if there are none, if rates were not recorded, or
    if they are not in the relation that ``find_meaning`` looks for.

    Args:
        find_meaning: called with the evidence, the reference's and the suspect's rates of the first
            group of parameters, by step; returns the values of the sentence, or None.
    """
    rates = [side.rates() for side in (evidence.reference, evidence.suspect)]
    if not all(rates) or len(rates[0][0]) != len(rates[1][0]):
        return None
    steps = min(map(len, rates))
    own, other = ([float(one[0]) for one in side[:steps]] for side in reversed(rates))
    step = evidence.step
    if not 1 <= step <= steps:
        return None
    explained = count_updates(evidence, rates[0][step - 1], rates[1][step - 1])
    values = find_meaning(evidence, other, own) if explained else None
    if values is None:
        return None
    said = {
        "reference_rates": format_rates(other),
        "suspect_rates": format_rates(own),
        **values,
    }
    return RankFinding(explained, "update", said, tuple(evidence.names_outside("update")))


def count_updates(
    evidence: RankEvidence, rates: NDArray[np.float64], others: NDArray[np.float64]
) -> int:
    """Return how many of the differing updates of the suspect are the reference's times the ratio
    of both sides' rates for one of the groups of parameters.

    Args:
        rates, others: the reference's and the suspect's rate of each group in this step.
    """
    moving = {b / a for a, b in zip(rates, others, strict=True) if a and not is_near(b, a)}
    count = 0
    for name, (x, y) in evidence.pairs("update").items():
        before = evidence.reference.find_weight_before(evidence.step, name)
        if before is None or before.shape != x.shape:
            continue
        start = before.astype(np.float64)
        count += any(
            evidence.agrees("update", name, start + ratio * (x - start), y) for ratio in moving
        )
    return count


def format_rates(rates: Sequence[float]) -> str:
    """Format the first rates of a schedule: ``0.001, 0.002, …``."""
    more = ", …" if len(rates) > MAX_SHOWN_RATES else ""
    return ", ".join(f"{rate:.4g}" for rate in rates[:MAX_SHOWN_RATES]) + more


def find_speed(rates: Sequence[float], others: Sequence[float]) -> int | None:
    """Return how many times (2 to `MAX_SPEED`) as fast the second schedule runs as the first, both
    from the same first rate; None if they are related otherwise.

    Where the first was not recorded far enough, it must be a straight line, which is continued to
    the second rate of ``others``.

    >>> find_speed([1.0, 2.0, 3.0, 4.0], [1.0, 5.0, 8.0, 8.0])
    4
    >>> find_speed([1.0, 0.5, 0.25, 0.125], [1.0, 0.25])
    2
    """
    if len(others) < 2 or len(rates) < 2 or not is_near(rates[0], others[0]):
        return None
    for speed in range(2, MAX_SPEED + 1):
        known = [(1 + speed * s, s + 1) for s in range(1, len(others)) if speed * s < len(rates)]
        if known and all(is_near(others[own - 1], rates[at - 1]) for at, own in known):
            return speed
    rise = rates[1] - rates[0]
    is_line = all(abs(b - a - rise) <= FACTOR_RTOL * abs(rise) for a, b in pairwise(rates))
    if not is_line or not rise:
        return None
    speed = round((others[1] - others[0]) / rise)
    same = is_near((others[1] - others[0]) / rise, speed) if speed else False
    return speed if same and 2 <= speed <= MAX_SPEED else None


def stepped_per_process(
    evidence: RankEvidence, rates: list[float], others: list[float]
) -> dict[str, Any] | None:
    """Return ``n``, the suspect's number of ranks, if its schedule (``others``) runs so many times
    as fast as the reference's (``rates``); else None."""
    speed = find_speed(rates, others)
    return {"n": speed} if speed is not None and speed == evidence.suspect.ranks else None


def stepped_per_micro_batch(
    evidence: RankEvidence, rates: list[float], others: list[float]
) -> dict[str, Any] | None:
    """Return ``n``, the suspect's number of micro-batches, if its schedule (``others``) runs so
    many times as fast as the reference's (``rates``); else None."""
    speed = find_speed(rates, others)
    return {"n": speed} if speed is not None and speed == evidence.suspect.micro_batches else None


def stepped_too_often(
    evidence: RankEvidence, rates: list[float], others: list[float]
) -> dict[str, Any] | None:
    """Return ``n``, how many times as fast the suspect's schedule (``others``) runs as the
    reference's (``rates``); None if it does not."""
    speed = find_speed(rates, others)
    return None if speed is None else {"n": speed}


def stepped_first(
    evidence: RankEvidence, rates: list[float], others: list[float]
) -> dict[str, Any] | None:
    """Return an empty dict if each of the suspect's rates (``others``) is the reference's next one
    (``rates``), which change; else None."""
    later = list(zip(rates[1:], others, strict=False))
    moves = any(not is_near(a, b) for a, b in pairwise(rates))
    return {} if moves and later and all(is_near(b, a) for a, b in later) else None


def never_stepped(
    evidence: RankEvidence, rates: list[float], others: list[float]
) -> dict[str, Any] | None:
    """Return an empty dict if the suspect's rates (``others``) all equal the reference's first one
    (``rates``), and the reference's change; else None."""
    stays = all(is_near(rate, others[0]) for rate in others)
    moves = any(not is_near(rate, rates[0]) for rate in rates)
    return {} if stays and moves and is_near(others[0], rates[0]) else None


def rate_times_ranks(
    evidence: RankEvidence, rates: list[float], others: list[float]
) -> dict[str, Any] | None:
    """Return ``n``, the suspect's number of ranks, if all its rates (``others``) are the
    reference's (``rates``) multiplied by it, or all divided by it; else None."""
    ranks = evidence.suspect.ranks
    pairs = list(zip(rates, others, strict=True))
    times = ranks > 1 and all(is_near(b, ranks * a) for a, b in pairs)
    over = ranks > 1 and all(is_near(b * ranks, a) for a, b in pairs)
    return {"n": ranks} if times or over else None


def other_rates(
    evidence: RankEvidence, rates: list[float], others: list[float]
) -> dict[str, Any] | None:
    """Return an empty dict for any rates: the finding shows them, and there is nothing more to
    say."""
    return {}
