"""Hypotheses about the weights of a mean over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dualml.parity.finder.causes.base import Arrays, Hypothesis, Observation, concat_flat
from dualml.parity.finder.causes.relations import nearest_simple
from dualml.parity.finder.causes.weights import solve_weights


def weights_of_ranks(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that ranks multiply their mean gradients by other weights than their
    shares of the batch, the same ones in every update of the same size; nothing for a single rank
    or a split model, or if no such weights fit."""
    scene, size = suspect.scene, suspect.world_size
    if size < 2 or scene.arm.split is not None:
        return
    weights: dict[tuple[tuple[float, ...], int], float] = {}

    def place(step: int, rank: int) -> tuple[tuple[float, ...], int]:
        return tuple(suspect.batch_share(step, q) for q in range(size)), rank

    for step, rank in suspect.violations:
        right, seen = suspect.expected(step, rank), suspect.recorded(step, rank)
        if seen.keys() != right.keys() or any(seen[n].shape != a.shape for n, a in right.items()):
            return
        found = solve_weights([concat_flat(right)], concat_flat({n: seen[n] for n in right}))
        if found is None:
            return
        share = suspect.batch_share(step, rank)
        known = weights.setdefault(place(step, rank), nearest_simple(float(found[0]) * share))
        if abs(known - float(found[0]) * share) > 1e-3 * abs(known):
            return

    def predict(step: int, rank: int) -> Arrays:
        share = suspect.batch_share(step, rank)
        factor = weights.get(place(step, rank), share) / share if share else 1.0
        return {n: factor * a for n, a in suspect.expected(step, rank).items()}

    shares = place(suspect.violations[0][0], 0)[0]
    told = [nearest_simple(weights.get((shares, q), shares[q])) for q in range(size)]
    if len({round(w / s, 6) for w, s in zip(told, shares, strict=True) if s}) > 1:
        yield Hypothesis("mean-weights", predict, {"of": "ranks", "weights": told}, len(set(told)))


def factors_of_ranks(suspect: Observation) -> Iterator[Hypothesis]:
    """Yield the hypothesis that the sum over the ranks has other weights, which are fitted; nothing
    if they are all equal, or if a gradient has another shape or is not finite."""
    scene_ranks, fitted = range(suspect.world_size), dict[tuple[int, int], list[float]]()
    for step, rank in suspect.violations:
        seen = suspect.recorded(step, rank)
        parts = [suspect.reference(step, q, "gradient") for q in scene_ranks]
        if any(parts[0][n].shape != a.shape for n, a in seen.items() if n in parts[0]):
            return
        columns = [concat_flat({n: part[n] for n in seen if n in part}) for part in parts]
        found = solve_weights(columns, concat_flat({n: seen[n] for n in seen if n in parts[0]}))
        if found is None:
            return
        fitted[step, rank] = found.tolist()
    first = next(iter(fitted.values()))
    if len(set(first)) == 1:
        return

    def predict(step: int, rank: int) -> Arrays:
        if (step, rank) not in fitted:
            return {}
        parts = [suspect.reference(step, q, "gradient") for q in scene_ranks]
        known = list(zip(fitted[step, rank], parts, strict=True))
        return {n: sum(w * part[n] for w, part in known) for n in parts[0]}

    cause, detail = cause_of_factors(fitted, first)
    yield Hypothesis(cause, predict, detail, fitted_count=1)


def cause_of_factors(
    fitted: dict[tuple[int, int], list[float]], first: list[float]
) -> tuple[str, dict[str, Any]]:
    """Return the cause and details of fitted weights: a rank counts otherwise than the others, each
    rank counts itself otherwise, or all have other weights.

    Args:
        fitted: (update, rank) → the weight of each rank in the sum that this rank holds.
        first: the weights of the first deviating update and rank.
    """
    size = len(first)
    own = [w[rank] for (_, rank), w in fitted.items()]
    others = [w for (_, rank), row in fitted.items() for q, w in enumerate(row) if q != rank]
    of_all = {rank for _, rank in fitted} == set(range(size))
    if of_all and np.ptp(own) < 1e-3 and np.ptp(others) < 1e-3 and abs(own[0] - others[0]) > 1e-3:
        return "own-rank-weight", {"own": own[0], "others": others[0]}
    usual = float(np.median(first)) if size > 2 else 1.0
    odd = [q for q, w in enumerate(first) if w != usual]
    if usual == 1.0 and len(odd) < size:
        cause = "lost-rank" if all(first[q] < usual for q in odd) else "doubled-rank"
        return cause, {"ranks": odd, "weights": [first[q] for q in odd]}
    return "rank-factors", {"factors": first}
