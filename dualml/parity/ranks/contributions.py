"""Gradients as sums of what ranks and micro-batches contribute, and how they were weighted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.gap import gap
from dualml.parity.models.trace import OUTPUT
from dualml.parity.ranks.evidence import RankEvidence, TraceSide, is_near, total_norm
from dualml.parity.ranks.factors import RankFinding
from dualml.parity.ranks.shards import average, find_other_copies

Wide = NDArray[np.float64]
#: (rank, number of the micro-batch).
Origin = tuple[int, int]
#: Largest distance, relative, of a fitted combination of contributions from a gradient.
MAX_MISFIT = 1e-4
#: Relative tolerance of weights that are fitted.
WEIGHT_RTOL = 5e-3
#: Elements of the contributions that are read at once.
MAX_ELEMENTS = 1 << 25
#: Added to the norm that clipping divides by.
CLIP_EPSILON = 1e-6


def find_contributions(
    side: TraceSide, step: int, names: Sequence[str]
) -> dict[str, dict[Origin, Wide]]:
    """Return name of a parameter → origin (rank, number of the backward pass) → its gradient as
    float64.

    Parameters that do not have the same origins as all others together are left out, and so are
    those after the first `MAX_ELEMENTS` elements of a large model.
    """
    found: dict[str, dict[Origin, Wide]] = {}
    size = 0
    for name in names:
        passes = side.find_passes(step, name)
        size += sum(array.size for _, _, array in passes)
        if size > MAX_ELEMENTS and found:
            break
        found[name] = {(rank, n): array.astype(np.float64) for rank, n, array in passes}
    origins = {origin for parts in found.values() for origin in parts}
    return {name: parts for name, parts in found.items() if parts and set(parts) == origins}


def predict_mean(
    contributions: Mapping[str, Mapping[Origin, Wide]], weights: Mapping[Origin, float]
) -> dict[str, Wide]:
    """Return name of a parameter → weighted mean of its contributions; the weights of the origins
    need not add up to 1."""
    return {
        name: average(list(parts.values()), [weights[origin] for origin in parts])
        for name, parts in contributions.items()
    }


def fit_weights(
    contributions: Mapping[str, Mapping[Origin, Wide]], targets: Mapping[str, Wide]
) -> dict[Origin, float] | None:
    """Return origin → weight with which the contributions add up to the gradients, by least
    squares.

    None if they do not, if there are fewer than two origins, or if the contributions are too few or
    too alike to tell.

    Args:
        targets: name of a parameter → gradient.
    """
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
    """Return what is explained if the suspect averages its ranks and micro-batches equally, and the
    reference weighs them by numbers of tokens or samples; None if nothing is."""
    step, pairs = evidence.step, evidence.pairs("gradient")
    contributions = find_contributions(evidence.suspect, step, list(pairs))
    pairs = {name: pairs[name] for name in contributions}
    origins = list(next(iter(contributions.values()), ()))
    if len(origins) < 2:
        return None
    stated = evidence.suspect.weights_of_losses(step)
    rows = count_rows(evidence.suspect, step, origins)
    weights = stated if set(stated) == set(origins) else None
    fitted = fit_weights(contributions, {n: x for n, (x, _) in pairs.items()})
    for given in (weights, rows, fitted):
        if given is None or not 0 < sum(given.values()) < math.inf:
            continue
        total = sum(given.values())
        shares = {origin: weight / total for origin, weight in given.items()}
        if min(shares.values()) <= 0 or max(shares.values()) < (1 + 1e-3) / len(origins):
            continue  # all weights are the same, or some have none
        if given is fitted and (
            is_inverse(shares, rows) or find_part(evidence.suspect, shares) is not None
        ):
            continue  # the other side averages equally, or a part of the loss counts otherwise
        agreeing = weigh_contributions(evidence, contributions, shares)
        if 2 * len(agreeing) > len(pairs):
            shown = stated if given is stated else rows if given is rows else shares
            counts = ", ".join(f"{shown[origin]:.4g}" for origin in origins)
            values = {"weights": counts, "n": len(origins)}
            return RankFinding(len(agreeing), "gradient", values, tuple(pairs))
    return None


def weigh_contributions(
    evidence: RankEvidence,
    contributions: Mapping[str, Mapping[Origin, Wide]],
    shares: Mapping[Origin, float],
) -> list[str]:
    """Return the names of the reference's gradients that equal the suspect's contributions weighted
    by ``shares`` (of sum 1); empty if the suspect's own gradients are not its contributions with
    one weight for all."""
    pairs = evidence.pairs("gradient", list(contributions))
    # The contributions of micro-batches may be divided by their number already.
    scale = find_scale(contributions, {n: y for n, (_, y) in pairs.items()})
    if scale is None:
        return []
    weighted = predict_mean(contributions, shares)
    right = {name: scale * len(shares) * value for name, value in weighted.items()}
    return [
        name
        for name, value in right.items()
        if evidence.agrees("gradient", name, value, pairs[name][0])
    ]


def count_rows(side: TraceSide, step: int, origins: Sequence[Origin]) -> dict[Origin, float] | None:
    """Return origin → number of samples of that pass, the length of the model's output along its
    first axis; None if it was not recorded for each of them."""
    found: dict[Origin, float] = {}
    traces = dict(side.traces_of_ranks())
    for rank, number in origins:
        name = OUTPUT + (f"#{number}" if number > 1 else "")
        output = traces[rank].find_array("forward", step, name)
        if output is None or not output.ndim:
            return None
        found[rank, number] = float(len(output))
    return found


def is_inverse(shares: Mapping[Origin, float], rows: Mapping[Origin, float] | None) -> bool:
    """Return whether shares are proportional to one divided by the numbers of samples ``rows``;
    False if these are unknown or all the same."""
    if rows is None or len(set(rows.values())) < 2 or not min(rows.values()):
        return False
    total = sum(1 / n for n in rows.values())
    return all(is_near(shares[at], 1 / n / total, WEIGHT_RTOL) for at, n in rows.items())


def find_part(side: TraceSide, shares: Mapping[Origin, float]) -> tuple[int, int] | None:
    """Return (number of the pass, number of passes) if each micro-batch has several backward
    passes, and one of them, counted from 1, has a share that is smaller by the number of
    micro-batches than the others'; None if the shares are not like that."""
    micro = side.micro_batches
    passes = max(number for _, number in shares)
    if micro < 2 or passes % micro or passes == micro or len(shares) != passes * side.ranks:
        return None
    each = passes // micro
    columns = [
        [share for (_, number), share in shares.items() if (number - 1) % each == at]
        for at in range(each)
    ]
    if any(not is_near(min(one), max(one), WEIGHT_RTOL) for one in columns):
        return None
    means = [sum(one) / len(one) for one in columns]
    low = min(range(each), key=lambda at: means[at])
    rest = [mean for at, mean in enumerate(means) if at != low]
    fits = all(is_near(mean, micro * means[low], WEIGHT_RTOL) for mean in rest)
    return (low + 1, each) if fits else None


def part_undivided(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if one part of the suspect's loss, which has a backward pass of its
    own, is not divided by the number of micro-batches, and the other parts are; None if nothing
    is."""
    pairs = evidence.pairs("gradient")
    contributions = find_contributions(evidence.suspect, evidence.step, list(pairs))
    fitted = fit_weights(contributions, {n: pairs[n][0] for n in contributions})
    if fitted is None or min(fitted.values()) <= 0:
        return None
    total = sum(fitted.values())
    shares = {origin: weight / total for origin, weight in fitted.items()}
    part = find_part(evidence.suspect, shares)
    scale = find_scale(contributions, {n: pairs[n][1] for n in contributions})
    if part is None or scale is None or not is_near(scale, max(fitted.values()), WEIGHT_RTOL):
        return None
    agreeing = [
        name
        for name, parts in contributions.items()
        if evidence.agrees(
            "gradient", name, np.sum([fitted[at] * g for at, g in parts.items()], 0), pairs[name][0]
        )
    ]
    values = {"part": part[0], "each": part[1], "n": evidence.suspect.micro_batches}
    return RankFinding(len(agreeing), "gradient", values, tuple(agreeing)) if agreeing else None


def find_scale(
    contributions: Mapping[str, Mapping[Origin, Wide]], recorded: Mapping[str, Wide]
) -> float | None:
    """Return the one number by which the sum of all contributions is multiplied to give the
    recorded gradients, by name of a parameter; None if there is none."""
    sums = {name: np.sum(list(parts.values()), axis=0) for name, parts in contributions.items()}
    x = np.concatenate([value.ravel() for value in sums.values()])
    y = np.concatenate([recorded[name].astype(np.float64).ravel() for name in sums])
    size = float(x @ x)
    scale = float(x @ y) / size if size else 0.0
    return scale if scale and gap(scale * x, y) <= MAX_MISFIT else None


def not_reduced(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's ranks update with different gradients, whose mean
    or sum is the reference's gradient: they were not exchanged. None if nothing is."""
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


def clipped_before_reduction(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's ranks clip their gradients by their own norms
    before they exchange them; None if that explains no more than half of the differing
    gradients."""
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
