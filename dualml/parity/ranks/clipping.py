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
    """Gradients of all parameters, before and after what one side does with them.

    Attributes:
        raw: of the suspect's backward passes together.
        right, own: of the updates of reference and suspect.
    """

    evidence: RankEvidence
    raw: NamedGradients
    right: NamedGradients
    own: NamedGradients

    def norm(self, gradients: NamedGradients) -> float:
        """Return the norm of all gradients together."""
        return total_norm(iter(gradients.values()))

    def find(
        self, predict: Callable[[str], Wide], values: Mapping[str, object]
    ) -> RankFinding | None:
        """Return the finding that the suspect's gradients are predicted, by name; None if that
        gives none of those that differ."""
        outside = self.evidence.names_outside("gradient")
        predicted = {name: predict(name) for name in outside if name in self.raw}
        count = self.evidence.count_agreeing("gradient", predicted)
        names = tuple(predicted)
        return RankFinding(count, "gradient", dict(values), names) if count else None

    def find_scaled(self, share: float, values: Mapping[str, object]) -> RankFinding | None:
        """Return the finding that the suspect's gradients are those of its passes times ``share``;
        None if that gives none of those that differ."""
        return self.find(lambda name: share * self.raw[name], values)


def find_clipping(evidence: RankEvidence) -> Clipping | None:
    """Return the gradients of the suspect before and after; None if they are too large, belong to
    several ranks, or if the updates have those of the passes."""
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
    """Return the gradients of all passes together, those of the update where none was recorded;
    None if none was recorded at all."""
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
    """Return the number by which all of one side's gradients give the other's; None if there is
    none."""
    a, b = (np.concatenate([one[name].ravel() for name in x]) for one in (x, y))
    size = float(a @ a)
    factor = float(a @ b) / size if size else 0.0
    return factor if factor and gap(factor * a, b) <= ONE_FACTOR else None


def find_scale_of_loss(factor: float | None) -> float | None:
    """Return a factor if it is a power of two that can be the scale of a loss."""
    if factor is None or factor < MIN_LOSS_SCALE:
        return None
    scale = 2.0 ** round(math.log2(factor))
    return scale if is_near(factor, scale, NORM_RTOL) else None


def round_norm(norm: float) -> float | None:
    """Return a norm of two digits, as people clip to; None if it is none."""
    plain = float(f"{norm:.2g}") if norm else 0.0
    return plain if plain and is_near(norm, plain, NORM_RTOL) else None


def unscaled_otherwise(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect divides its gradients by another number than the
    scale of its loss, not twice by that scale."""
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
    """Return what is explained if the suspect divides its gradients twice by the scale of its
    loss."""
    found = find_clipping(evidence)
    scales = None if found is None else find_scales(found)
    if found is None or scales is None or not is_near(scales[1], scales[0] ** 2, NORM_RTOL):
        return None
    scale = scales[0]
    return found.find_scaled(scale**-2, {"scale": f"{scale:g}"})


def find_scales(found: Clipping) -> tuple[float, float] | None:
    """Return the scale of the suspect's loss and the other power of two by which it divides; None
    if there are none."""
    scale = find_scale_of_loss(common_factor(found.right, found.raw))
    divisor = find_scale_of_loss(common_factor(found.own, found.raw))
    return (scale, divisor) if scale and divisor and scale != divisor else None


def clipped_while_scaled(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect clips its gradients while they have the scale of the
    loss, and divides by that afterwards."""
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
    """Return what is explained if the suspect clips groups of parameters, or each alone, by their
    own norms; the reference has one factor for all."""
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
    """Return what is explained if the suspect cuts each element of its gradients at one value."""
    found = find_clipping(evidence)
    if found is None:
        return None
    limit = round_norm(max(float(np.abs(one).max(initial=0.0)) for one in found.own.values()))
    largest = max(float(np.abs(one).max(initial=0.0)) for one in found.raw.values())
    if limit is None or limit >= largest:
        return None
    return found.find(lambda name: np.clip(found.raw[name], -limit, limit), {"limit": f"{limit:g}"})


def clipped_with_other_term(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if both sides clip to one norm, and add other terms to the norm that
    they divide by."""
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
    which it clips larger ones."""
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
    """Return what is explained if both sides clip all gradients together, to other norms."""
    found = find_clipping(evidence)
    if found is None or common_factor(found.raw, found.own) is None:
        return None
    before, own, theirs = (found.norm(one) for one in (found.raw, found.own, found.right))
    norms = round_norm(own), round_norm(theirs)
    if norms[0] is None or norms[1] is None or not max(own, theirs) < before * (1 - NORM_RTOL):
        return None
    values = {"norm": f"{norms[0]:g}", "other": f"{norms[1]:g}", "before": f"{before:.4g}"}
    return found.find_scaled(own / before, values)
