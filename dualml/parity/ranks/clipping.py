"""Mistakes between a backward pass and its update: how gradients are unscaled and clipped.

A recorder keeps the gradients of a pass where the update has others, see
`dualml.parity.ranks.backward_passes`; from both follows what was done to them in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.gap import gap
from dualml.parity.ranks.evidence import RankEvidence, TraceSide, is_near, total_norm
from dualml.parity.ranks.factors import MIN_LOSS_SCALE, NORM_RTOL, ONE_FACTOR, RankFinding
from dualml.parity.ranks.state_mistakes import list_names

Wide = NDArray[np.float64]
NamedGradients = Mapping[str, Wide]
#: Terms that are added to the norm that clipping divides by.
TERMS = (1e-6, 0.0, 1e-8, 1e-5, 1e-12, 1e-4, 1e-3)
#: By how much a term must predict better than the other side's own gradients.
BETTER = 3
#: Groups whose norms a sentence names.
MAX_GROUPS = 4


@dataclass(frozen=True)
class Clipping:
    """Gradients of all parameters by name, before and after the suspect unscales and clips them.

    Attributes:
        evidence: the two sides.
        raw: the suspect's gradients, added up over its backward passes.
        right, own: gradients with which reference and suspect update.
    """

    evidence: RankEvidence
    raw: NamedGradients
    right: NamedGradients
    own: NamedGradients

    def norm(self, gradients: NamedGradients) -> float:
        """Return the Euclidean norm of all these gradients together."""
        return total_norm(iter(gradients.values()))

    def find(
        self, predict: Callable[[str], Wide], values: Mapping[str, object]
    ) -> RankFinding | None:
        """Return the finding of how many of the suspect's differing gradients ``predict`` gives;
        None if it gives none of them.

        Args:
            predict: returns the predicted gradient of a parameter's name.
            values: values for the finding's sentence.
        """
        outside = self.evidence.names_outside("gradient")
        predicted = {name: predict(name) for name in outside if name in self.raw}
        count = self.evidence.count_agreeing("gradient", predicted)
        names = tuple(predicted)
        return RankFinding(count, "gradient", dict(values), names) if count else None

    def find_scaled(self, share: float, values: Mapping[str, object]) -> RankFinding | None:
        """Return the finding that the suspect's gradients are those of its passes times ``share``;
        None if that gives none of those that differ.

        Args:
            values: values for the finding's sentence.
        """
        return self.find(lambda name: share * self.raw[name], values)


def find_clipping(evidence: RankEvidence) -> Clipping | None:
    """Return the suspect's gradients before and after it unscales and clips them.

    None if it has several ranks, if no gradient differs, if the gradients are too large to be read
    or not finite, or if no gradients of its passes were recorded besides those of the update.
    """
    if evidence.suspect.ranks > 1 or not evidence.names_outside("gradient"):
        return None
    pairs = evidence.pairs_of_all()
    if not pairs:
        return None
    own = {name: y.astype(np.float64) for name, (_, y) in pairs.items()}
    raw = sum_passes(evidence.suspect, evidence.step, own)
    right = {name: x.astype(np.float64) for name, (x, _) in pairs.items()}
    every = (one for side in (raw or own, right, own) for one in side.values())
    if raw is None or not all(np.isfinite(one).all() for one in every):
        return None
    return Clipping(evidence, raw, right, own)


def sum_passes(side: TraceSide, step: int, gradients: NamedGradients) -> dict[str, Wide] | None:
    """Return the gradients of all backward passes of a step added up, by name; those in
    ``gradients`` for a parameter of which none was recorded. None if none was recorded at all."""
    found = {name: side.find_passes(step, name) for name in gradients}
    if not any(found.values()):
        return None
    return {
        name: np.sum([one[2].astype(np.float64) for one in passes], axis=0)
        if passes
        else gradients[name]
        for name, passes in found.items()
    }


def common_factor(x: NamedGradients, y: NamedGradients) -> float | None:
    """Return the one number by which all gradients of ``x`` are multiplied to give those of ``y``,
    up to `ONE_FACTOR`; None if there is none or it is 0."""
    a, b = (np.concatenate([one[name].ravel() for name in x]) for one in (x, y))
    size = float(a @ a)
    factor = float(a @ b) / size if size else 0.0
    return factor if factor and gap(factor * a, b) <= ONE_FACTOR else None


def find_scale_of_loss(factor: float | None) -> float | None:
    """Return the power of two that a factor is near to, if it can be the scale of a loss (at least
    `MIN_LOSS_SCALE`); else None."""
    if factor is None or factor < MIN_LOSS_SCALE:
        return None
    scale = 2.0 ** round(math.log2(factor))
    return scale if is_near(factor, scale, NORM_RTOL) else None


def round_norm(norm: float) -> float | None:
    """Return a norm rounded to two significant digits, as people choose norms to clip to; None if
    it is not near such a number, or 0."""
    plain = float(f"{norm:.2g}") if norm else 0.0
    return plain if plain and is_near(norm, plain, NORM_RTOL) else None


def unscaled_otherwise(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect divides its gradients by a larger power of two than
    the scale of its loss, but not by the square of that scale (`unscaled_twice`); None if nothing
    is."""
    found = find_clipping(evidence)
    scales = None if found is None else find_scales(found)
    if found is None or scales is None or is_near(scales[1], scales[0] ** 2, NORM_RTOL):
        return None
    scale, divisor = scales
    if divisor < scale:
        return None  # scales grow between steps: the other side divides by the later one
    values = {"scale": f"{scale:g}", "divisor": f"{divisor:g}"}
    return found.find_scaled(1 / divisor, values)


def unscaled_twice(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect divides its gradients twice by the scale of its loss;
    None if nothing is."""
    found = find_clipping(evidence)
    scales = None if found is None else find_scales(found)
    if found is None or scales is None or not is_near(scales[1], scales[0] ** 2, NORM_RTOL):
        return None
    scale = scales[0]
    return found.find_scaled(scale**-2, {"scale": f"{scale:g}"})


def find_scales(found: Clipping) -> tuple[float, float] | None:
    """Return the scale of the suspect's loss and the power of two by which it really divides its
    gradients; None if either is not found or both are equal."""
    scale = find_scale_of_loss(common_factor(found.right, found.raw))
    divisor = find_scale_of_loss(common_factor(found.own, found.raw))
    return (scale, divisor) if scale and divisor and scale != divisor else None


def clipped_while_scaled(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect clips its gradients while they still have the scale
    of the loss, and divides by that afterwards; None if nothing is."""
    found = find_clipping(evidence)
    if found is None or common_factor(found.raw, found.own) is None:
        return None
    before, after = found.norm(found.raw), found.norm(found.own)
    # The reference does not clip, or it clips to the same norm.
    for factor in (
        common_factor(found.right, found.raw),
        common_factor(found.own, found.right) if round_norm(found.norm(found.right)) else None,
    ):
        scale = find_scale_of_loss(factor)
        norm = round_norm(after * scale) if scale else None
        if scale and norm and norm < before and not is_near(before, after * scale, NORM_RTOL):
            values = {"scale": f"{scale:g}", "norm": f"{norm:g}", "before": f"{before:.4g}"}
            share = norm / before / scale
            return found.find_scaled(share, values)
    return None


def clipped_by_group(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect clips groups of parameters, or each parameter alone,
    by their own norms, and the reference scales all by one factor; None if nothing is."""
    found = find_clipping(evidence)
    if found is None or common_factor(found.raw, found.right) is None:
        return None
    groups: dict[float, list[str]] = {}
    for name, raw in found.raw.items():
        if not raw.any():
            continue
        factor = common_factor({name: raw}, found.own)
        if factor is None or factor > 1 + NORM_RTOL:
            return None
        known = next((one for one in groups if is_near(one, factor, NORM_RTOL)), factor)
        groups.setdefault(known, []).append(name)
    clipped = [names for factor, names in groups.items() if not is_near(factor, 1.0, NORM_RTOL)]
    norms = [total_norm(found.own[name] for name in names) for names in clipped]
    norm = round_norm(norms[0]) if norms else None
    if len(groups) < 2 or norm is None or not all(is_near(n, norm, NORM_RTOL) for n in norms):
        return None
    factors = {name: factor for factor, names in groups.items() for name in names}
    before = [
        f"{total_norm(found.raw[name] for name in names):.4g} ({list_names(names)})"
        for names in groups.values()
    ]
    more = "; …" if len(before) > MAX_GROUPS else ""
    values = {"norm": f"{norm:g}", "n": len(groups), "norms": "; ".join(before[:MAX_GROUPS]) + more}
    return found.find(lambda name: factors.get(name, 1.0) * found.raw[name], values)


def clipped_by_value(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect limits each element of its gradients to one absolute
    value; None if nothing is."""
    found = find_clipping(evidence)
    if found is None:
        return None
    limit = round_norm(max(float(np.abs(one).max(initial=0.0)) for one in found.own.values()))
    largest = max(float(np.abs(one).max(initial=0.0)) for one in found.raw.values())
    if limit is None or limit >= largest:
        return None
    return found.find(lambda name: np.clip(found.raw[name], -limit, limit), {"limit": f"{limit:g}"})


def clipped_with_other_term(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if both sides clip to the same norm, but add another small term (one
    of `TERMS`) to the norm that they divide by; None if nothing is."""
    found = find_clipping(evidence)
    if found is None:
        return None
    before, after = found.norm(found.raw), found.norm(found.right)
    apart = {name: gap(found.right[name], found.own[name]) for name in found.own}
    for theirs, mine in permutations(TERMS, 2):
        norm = round_norm(after * (before + theirs) / before) if before else None
        if norm is None or norm > before:
            continue
        share = norm / (before + mine)
        close = [
            name
            for name, far in apart.items()
            if BETTER * gap(share * found.raw[name], found.own[name]) < far
        ]
        if 2 * len(close) > len(apart):
            values = {"norm": f"{norm:g}", "theirs": f"{theirs:g}", "mine": f"{mine:g}"}
            values["before"] = f"{before:.4g}"
            return found.find_scaled(share, values)
    return None


def raised_to_norm(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect scales gradients of a smaller norm up to the norm to
    which it clips larger ones; None if nothing is."""
    found = find_clipping(evidence)
    if found is None:
        return None
    before, own = found.norm(found.raw), found.norm(found.own)
    norm = round_norm(own)
    kept = common_factor(found.raw, found.right)
    if norm is None or kept is None or not is_near(kept, 1.0, NORM_RTOL) or own <= before:
        return None
    values = {"norm": f"{norm:g}", "before": f"{before:.4g}"}
    return found.find_scaled(own / before, values)


def clipped_to_other_norm(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if both sides clip all gradients together, but to different norms;
    None if nothing is."""
    found = find_clipping(evidence)
    if found is None or common_factor(found.raw, found.own) is None:
        return None
    before, own, theirs = (found.norm(one) for one in (found.raw, found.own, found.right))
    norms = round_norm(own), round_norm(theirs)
    if norms[0] is None or norms[1] is None or not max(own, theirs) < before * (1 - NORM_RTOL):
        return None
    values = {"norm": f"{norms[0]:g}", "other": f"{norms[1]:g}", "before": f"{before:.4g}"}
    return found.find_scaled(own / before, values)
