"""Mistakes with several backward passes of a step: gradients that are cleared too often, or not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dualml.parity.ranks.contributions import (
    WEIGHT_RTOL,
    Origin,
    find_contributions,
    find_scale,
    fit_weights,
)
from dualml.parity.ranks.evidence import RankEvidence, is_near
from dualml.parity.ranks.factors import RankFinding
from dualml.parity.ranks.state_mistakes import list_names

Wide = NDArray[np.float64]
Contributions = Mapping[str, Mapping[Origin, Wide]]


def all_add_up(contributions: Contributions, targets: Mapping[str, Wide]) -> bool:
    """Return whether the target gradients are the sum of all contributions, each with a weight
    clearly above 0.

    Args:
        contributions: name of a parameter → (rank, number of the pass) → gradient.
        targets: name of a parameter → gradient.
    """
    if find_scale(contributions, targets) is not None:
        return True
    fitted = fit_weights(contributions, targets)
    return fitted is not None and min(fitted.values()) > WEIGHT_RTOL * max(fitted.values())


def last_micro_batch(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's gradients are those of its last backward pass
    alone, up to one factor, and all passes together give the reference's; None if nothing is."""
    pairs = evidence.pairs("gradient")
    contributions = find_contributions(evidence.suspect, evidence.step, list(pairs))
    pairs = {name: pairs[name] for name in contributions}
    count = max((n for parts in contributions.values() for _, n in parts), default=0)
    several = evidence.suspect.ranks > 1 or evidence.suspect.micro_batches > 1
    if count < 2 or not several:
        return None
    last = {
        name: {origin: value for origin, value in parts.items() if origin[1] == count}
        for name, parts in contributions.items()
    }
    scale = find_scale(last, {name: y for name, (_, y) in pairs.items()})
    if scale is None or not all_add_up(contributions, {name: x for name, (x, _) in pairs.items()}):
        return None
    predicted = {name: scale * np.sum(list(parts.values()), axis=0) for name, parts in last.items()}
    explained = evidence.count_agreeing("gradient", predicted)
    return RankFinding(explained, "gradient", {"n": count}, tuple(pairs)) if explained else None


def some_micro_batches(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's gradients are those of some of its micro-batches,
    not of the last alone, and all of them together give the reference's; None if nothing is, or
    with several ranks."""
    pairs = evidence.pairs("gradient")
    contributions = find_contributions(evidence.suspect, evidence.step, list(pairs))
    targets = [{name: pairs[name][side] for name in contributions} for side in (0, 1)]
    fitted = fit_weights(contributions, targets[1])
    if fitted is None or evidence.suspect.ranks > 1 or evidence.suspect.micro_batches < 2:
        return None
    largest = max(fitted.values())
    used = {at: weight for at, weight in fitted.items() if abs(weight) > WEIGHT_RTOL * largest}
    alike = all(is_near(weight, largest, WEIGHT_RTOL) for weight in used.values())
    numbers = sorted(number for _, number in used)
    if not alike or len(used) == len(fitted) or numbers == [len(fitted)]:
        return None
    if not all_add_up(contributions, targets[0]):
        return None
    predicted = {
        name: np.sum([largest * parts[at] for at in used], axis=0)
        for name, parts in contributions.items()
    }
    explained = evidence.count_agreeing("gradient", predicted)
    if not explained:
        return None
    shown = ", ".join(map(str, numbers))
    values = {"n": len(fitted), "count": len(used), "numbers": shown}
    return RankFinding(explained, "gradient", values, tuple(contributions))


def never_cleared(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's gradients are the reference's plus its own of the
    step before; None if nothing is."""
    names = []
    for name, (x, y) in evidence.pairs("gradient").items():
        earlier = evidence.suspect.find_array("gradient", evidence.step - 1, name)
        if earlier is None or not earlier.any():
            continue
        if evidence.agrees("gradient", name, x + earlier.astype(np.float64), y):
            names.append(name)
    if not names:
        return None
    values = {"n": len(names), "names": list_names(names)}
    return RankFinding(len(names), "gradient", values, tuple(names))


def other_pass_kept(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's gradients also hold those of another backward pass
    of the step (of another loss, not of another micro-batch), which the reference's do not; None if
    nothing is."""
    if evidence.suspect.micro_batches > 1:
        return None
    pairs = evidence.pairs("gradient")
    names = [n for n, (x, y) in pairs.items() if holds_other_pass(evidence, n, x, y)]
    if not names:
        return None
    values = {"n": len(names), "names": list_names(names)}
    return RankFinding(len(names), "gradient", values, tuple(names))


def holds_other_pass(evidence: RankEvidence, name: str, x: Wide, y: Wide) -> bool:
    """Return whether the suspect's gradient ``y`` is the sum of all of its several backward passes,
    and the reference's ``x`` is that of one of them."""
    passes = [
        one[2].astype(np.float64) for one in evidence.suspect.find_passes(evidence.step, name)
    ]
    if len(passes) < 2 or not evidence.agrees("gradient", name, np.sum(passes, axis=0), y):
        return False
    return any(one.any() and evidence.agrees("gradient", name, one, x) for one in passes)
