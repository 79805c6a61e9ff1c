"""Gradients as sums of what ranks and micro-batches contribute, and how they were weighted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.gap import gap
from dualml.parity.ranks.evidence import RankEvidence, TraceSide, total_norm
from dualml.parity.ranks.factors import RankFinding
from dualml.parity.ranks.shards import average, find_other_copies

Wide = NDArray[np.float64]
#: (rank, number of the micro-batch).
Origin = tuple[int, int]
#: Largest distance, relative, of a fitted combination of contributions from a gradient.
MAX_MISFIT = 1e-4
#: Elements of the contributions that are read at once.
MAX_ELEMENTS = 1 << 25
#: Added to the norm that clipping divides by.
CLIP_EPSILON = 1e-6


def find_contributions(
    side: TraceSide, step: int, names: Sequence[str]
) -> dict[str, dict[Origin, Wide]]:
    """Return name of a parameter → origin → gradient in float64, of parameters to which all ranks
    and micro-batches contribute; of a large model only of some."""
    found: dict[str, dict[Origin, Wide]] = {}
    size = 0
    for name in names:
        passes = side.find_passes(step, name)
        size += sum(array.size for _, _, array in passes)
        if size > MAX_ELEMENTS and found:
            break
        found[name] = {(one.facts.rank, n): array.astype(np.float64) for one, n, array in passes}
    origins = {origin for parts in found.values() for origin in parts}
    return {name: parts for name, parts in found.items() if parts and set(parts) == origins}


def predict_mean(
    contributions: Mapping[str, Mapping[Origin, Wide]], weights: Mapping[Origin, float]
) -> dict[str, Wide]:
    """Return the weighted means of contributions by name of a parameter."""
    return {
        name: average(list(parts.values()), [weights[origin] for origin in parts])
        for name, parts in contributions.items()
    }


def fit_weights(
    contributions: Mapping[str, Mapping[Origin, Wide]], targets: Mapping[str, Wide]
) -> dict[Origin, float] | None:
    """Return the weights with which contributions add up to gradients, by least squares; None if
    they do not, or if contributions are too few or alike to tell."""
    names = [name for name in contributions if name in targets]
    origins = list(next(iter(contributions.values()), ()))
    if not names or len(origins) < 2:
        return None
    columns = [
        np.concatenate([contributions[name][origin].ravel() for name in names])
        for origin in origins
    ]
    matrix = np.stack(columns, axis=1)
    target = np.concatenate([targets[name].astype(np.float64).ravel() for name in names])
    if len(target) <= len(origins) or not (np.isfinite(matrix).all() and np.isfinite(target).all()):
        return None
    solution, _, rank, _ = np.linalg.lstsq(matrix, target, rcond=1e-7)
    if rank < len(origins) or gap(matrix @ solution, target) > MAX_MISFIT:
        return None
    return dict(zip(origins, map(float, solution), strict=True))


def mean_of_means(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect averages its ranks and micro-batches equally, and
    the reference weighs them by numbers of tokens."""
    step, pairs = evidence.step, evidence.pairs("gradient")
    contributions = find_contributions(evidence.suspect, step, list(pairs))
    pairs = {name: pairs[name] for name in contributions}
    origins = list(next(iter(contributions.values()), ()))
    if len(origins) < 2:
        return None
    stated = evidence.suspect.weights_of_losses(step)
    weights = stated if set(stated) == set(origins) else None
    for given in (weights, fit_weights(contributions, {n: x for n, (x, _) in pairs.items()})):
        if given is None or not 0 < sum(given.values()) < math.inf:
            continue
        total = sum(given.values())
        shares = {origin: weight / total for origin, weight in given.items()}
        if min(shares.values()) < 0 or max(shares.values()) < (1 + 1e-3) / len(origins):
            continue  # all weights are the same
        # The contributions of micro-batches may be divided by their number already.
        scale = find_scale(contributions, {n: y for n, (_, y) in pairs.items()})
        if scale is None:
            continue
        weighted = predict_mean(contributions, shares)
        right = {name: scale * len(origins) * value for name, value in weighted.items()}
        agreeing = [
            name
            for name, value in right.items()
            if evidence.agrees("gradient", name, value, pairs[name][0])
        ]
        if 2 * len(agreeing) > len(pairs):
            shown = stated if given is stated else shares
            counts = ", ".join(f"{shown[origin]:.4g}" for origin in origins)
            values = {"weights": counts, "n": len(origins)}
            return RankFinding(len(agreeing), "gradient", values, tuple(pairs))
    return None


def find_scale(
    contributions: Mapping[str, Mapping[Origin, Wide]], recorded: Mapping[str, Wide]
) -> float | None:
    """Return the one weight of all contributions with which they add up to the recorded gradients;
    None if they do not."""
    sums = {name: np.sum(list(parts.values()), axis=0) for name, parts in contributions.items()}
    x = np.concatenate([value.ravel() for value in sums.values()])
    y = np.concatenate([recorded[name].astype(np.float64).ravel() for name in sums])
    size = float(x @ x)
    scale = float(x @ y) / size if size else 0.0
    return scale if scale and gap(scale * x, y) <= MAX_MISFIT else None


def not_reduced(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's ranks have different gradients, whose mean or sum
    is the reference's: they were not exchanged."""
    explained, names, how = 0, [], {"mean": 0, "sum": 0}
    for name, (x, _) in evidence.pairs("gradient").items():
        parts = evidence.suspect.find_parts("gradient", evidence.step, name)
        if len(parts) < 2 or not find_other_copies(parts):
            continue
        ranks = [part.array.astype(np.float64) for part in parts]
        for key, value in (("mean", np.mean(ranks, axis=0)), ("sum", np.sum(ranks, axis=0))):
            if evidence.agrees("gradient", name, value, x):
                explained, how[key] = explained + 1, how[key] + 1
                names.append(name)
                break
    if not explained:
        return None
    operation = max(how, key=lambda key: how[key])
    values = {"operation": operation, "count": explained, "names": ", ".join(names[:4])}
    return RankFinding(explained, "gradient", values, tuple(names))


def last_micro_batch(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's gradients are those of its last micro-batch alone,
    up to one factor."""
    pairs = evidence.pairs("gradient")
    contributions = find_contributions(evidence.suspect, evidence.step, list(pairs))
    pairs = {name: pairs[name] for name in contributions}
    count = max((n for parts in contributions.values() for _, n in parts), default=0)
    if count < 2:
        return None
    last = {
        name: {origin: value for origin, value in parts.items() if origin[1] == count}
        for name, parts in contributions.items()
    }
    scale = find_scale(last, {name: y for name, (_, y) in pairs.items()})
    if scale is None:
        return None
    predicted = {name: scale * np.sum(list(parts.values()), axis=0) for name, parts in last.items()}
    explained = evidence.count_agreeing("gradient", predicted)
    return RankFinding(explained, "gradient", {"n": count}, tuple(pairs)) if explained else None


def clipped_before_reduction(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's ranks clip their gradients by their own norms, and
    exchange them afterwards."""
    every = evidence.pairs_of_all() or {}
    contributions = find_contributions(evidence.suspect, evidence.step, list(every))
    ranks = sorted({rank for parts in contributions.values() for rank, _ in parts})
    if len(ranks) < 2 or len(contributions) < len(every):
        return None
    norm = total_norm(x for x, _ in every.values())
    sums = {
        rank: {
            name: np.sum([v for (r, _), v in parts.items() if r == rank], axis=0)
            for name, parts in contributions.items()
        }
        for rank in ranks
    }
    norms = {rank: total_norm(iter(own.values())) for rank, own in sums.items()}
    factors = {rank: min(1.0, norm / (norms[rank] + CLIP_EPSILON)) for rank in ranks}
    if min(factors.values()) == 1.0:
        return None
    predicted = {
        name: np.mean([factors[rank] * sums[rank][name] for rank in ranks], axis=0)
        for name in contributions
    }
    explained = evidence.count_agreeing("gradient", predicted)
    if 2 * explained <= len(evidence.names_outside("gradient")):
        return None
    shown = ", ".join(f"{norms[rank]:.4g}" for rank in ranks)
    values = {"norm": f"{norm:.4g}", "norms": shown}
    return RankFinding(explained, "gradient", values, tuple(contributions))
