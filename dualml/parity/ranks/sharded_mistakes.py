"""Mistakes of models whose parameters are divided among ranks: norms, biases, buffers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.gap import gap
from dualml.parity.models.layers import module_name
from dualml.parity.models.trace import OUTPUT
from dualml.parity.ranks.evidence import FACTOR_RTOL, RankEvidence, is_near, total_norm
from dualml.parity.ranks.factors import NORM_RTOL, ONE_FACTOR, RankFinding, find_factor
from dualml.parity.ranks.shards import RankArray, cut_shard, is_sharded

Wide = NDArray[np.float64]
#: Momenta of running statistics, and terms of variances, that frameworks and models use.
MOMENTA = (0.1, 0.01, 0.03, 0.001, 0.05, 0.003, 0.02)
EPSILONS = (1e-5, 1e-3, 1e-6, 1e-4, 1e-8)


def clipped_by_own_norm(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if each rank of the suspect clips its shards by their own norm:
    every rank has a factor of its own, and all shards of a rank that clips have the norm that all
    gradients of the reference have. None if nothing is."""
    pairs = evidence.pairs_of_all() or {}
    by_rank: dict[int, list[tuple[str, RankArray, Wide]]] = {}
    for name, (x, _) in pairs.items():
        parts = evidence.suspect.find_parts("gradient", evidence.step, name)
        if not parts or not is_sharded(parts):
            return None
        for part in parts:
            if part.array.size:
                expected = cut_shard(x, part).astype(np.float64)
                by_rank.setdefault(part.rank, []).append((name, part, expected))
    if len(by_rank) < 2:
        return None
    norm = total_norm(x for x, _ in pairs.values())
    factors, failing = {}, set()
    for rank, shards in by_rank.items():
        own = total_norm(part.array for _, part, _ in shards)
        expected_norm = total_norm(expected for _, _, expected in shards)
        if not expected_norm or own > norm * (1 + NORM_RTOL):
            return None
        factors[rank] = own / expected_norm
        for name, part, expected in shards:
            if gap(factors[rank] * expected, part.array.astype(np.float64)) > ONE_FACTOR:
                failing.add(name)
    norms = {rank: total_norm(part.array for _, part, _ in s) for rank, s in by_rank.items()}
    clipped = [rank for rank, own in norms.items() if is_near(own, norm, NORM_RTOL)]
    apart = not is_near(min(factors.values()), max(factors.values()), ONE_FACTOR)
    explained = [name for name in evidence.names_outside("gradient") if name not in failing]
    if not clipped or not (apart or len(clipped) == len(by_rank)) or not explained:
        return None
    values = {
        "norm": f"{norm:.4g}",
        "factors": ", ".join(f"{factors[rank]:.4g}" for rank in sorted(factors)),
    }
    return RankFinding(len(explained), "gradient", values, tuple(pairs))


def counted_copies(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the norm by which the suspect clips counts the gradients of which
    every rank has a copy once for each rank; None if nothing is."""
    found, ranks = find_factor(evidence), evidence.suspect.ranks
    if found is None or ranks < 2:
        return None
    shards, copies = 0.0, 0.0
    pairs = evidence.pairs_of_all() or {}
    for name, (x, _) in pairs.items():
        parts = evidence.suspect.find_parts("gradient", evidence.step, name)
        square = total_norm(iter([x])) ** 2
        if is_sharded(parts):
            shards += square
        else:
            copies += square
    if not shards or not copies:
        return None
    expected = ((shards + copies) / (shards + ranks * copies)) ** 0.5
    if not is_near(found[0], expected, NORM_RTOL):
        return None
    predicted = {name: found[0] * x for name, (x, _) in evidence.pairs("gradient").items()}
    explained = evidence.count_agreeing("gradient", predicted)
    values = {"n": ranks, "factor": f"{found[0]:.6g}"}
    return RankFinding(explained, "gradient", values, tuple(pairs)) if explained else None


def bias_per_rank(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if every rank of the suspect adds a layer's bias before the ranks'
    results are added up, so that outputs have it as often as there are ranks; None if nothing
    is."""
    ranks, explained, names = evidence.suspect.ranks, 0, []
    for name, (x, y) in evidence.pairs("forward").items():
        module = module_name(name)
        bias = evidence.reference.find_weight_before(evidence.step, f"{module}.bias")
        if ranks < 2 or module == OUTPUT or bias is None or x.shape[-1:] != bias.shape:
            continue
        if evidence.agrees("forward", name, x + (ranks - 1) * bias, y):
            explained += 1
            names.append(module)
    if not explained:
        return None
    values = {"n": ranks, "module": names[0]}
    return RankFinding(explained, "forward", values, tuple(names))


def statistics_per_rank(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's ranks normalise by the statistics of their own part
    of the batch: their running means differ, and the mean of these is the reference's. None if
    nothing is."""
    explained, module_names = 0, []
    for name in evidence.names_outside("state"):
        if not name.endswith(("running_mean", "moving_mean")):
            continue
        tensor = name.rpartition("/")[2]
        parts = evidence.suspect.find_parts("state", evidence.step, name)
        whole = evidence.reference.find_array("state", evidence.step, name)
        if len(parts) < 2 or whole is None or any(p.array.shape != whole.shape for p in parts):
            continue
        means = [part.array.astype(np.float64) for part in parts]
        differ = gap(means[0], means[-1]) > FACTOR_RTOL
        if differ and evidence.agrees("state", name, np.mean(means, axis=0), whole):
            explained += 1
            module_names.append(tensor.rpartition(".")[0])
    if not explained:
        return None
    outputs = sum(explains_outputs(evidence, module) for module in module_names)
    values = {"module": module_names[0], "count": len(module_names), "outputs": outputs}
    return RankFinding(explained + outputs, "state", values, tuple(module_names))


def explains_outputs(evidence: RankEvidence, module: str) -> bool:
    """Return whether, in step 1, the suspect's outputs of a normalisation (``module``) are the
    reference's, normalised again in each rank's part of the batch; False if that cannot be told."""
    pair = evidence.pairs("forward", [module]).get(module)
    step, reference, ranks = evidence.step, evidence.reference, evidence.suspect.ranks
    scale = reference.find_weight_before(step, f"{module}.weight")
    shift = reference.find_weight_before(step, f"{module}.bias")
    start, end = (
        reference.find_array("parameters", 0, f"{module}.running_var"),
        reference.find_array("state", step, f"buffer/{module}.running_var"),
    )
    if pair is None or scale is None or shift is None or start is None or end is None or step > 1:
        return False
    x, y = (one.astype(np.float64) for one in pair)
    if x.ndim < 2 or len(x) % ranks or not scale.all():
        return False
    channels = (1, -1, *(1,) * (x.ndim - 2))
    axes = (0, *range(2, x.ndim))
    count = x.size // x.shape[1]
    plain = (x - shift.reshape(channels)) / scale.reshape(channels)
    for momentum in MOMENTA:
        variance = (end - (1 - momentum) * start) / momentum * (count - 1) / count
        for epsilon in EPSILONS:
            # Undo the whole batch's normalisation, up to its mean, which each rank removes again.
            values = plain * np.sqrt(np.maximum(variance, 0) + epsilon).reshape(channels)
            blocks = [
                (part - part.mean(axes, keepdims=True))
                / np.sqrt(part.var(axes, keepdims=True) + epsilon)
                for part in np.split(values, ranks)
            ]
            predicted = np.concatenate(blocks) * scale.reshape(channels) + shift.reshape(channels)
            if evidence.agrees("forward", module, predicted, y):
                return True
    return False


def buffers_apart(evidence: RankEvidence) -> RankFinding | None:
    """Return what is explained if the suspect's ranks have different buffers, and the reference's
    is that of a rank other than the first, or their mean or sum; None if nothing is."""
    explained, names = 0, []
    for name in evidence.names_outside("state"):
        parts = evidence.suspect.find_parts("state", evidence.step, name)
        arrays = [part.array.astype(np.float64) for part in parts]
        whole = evidence.reference.find_array("state", evidence.step, name)
        if not name.startswith("buffer/") or len(arrays) < 2 or whole is None:
            continue
        if any(one.shape != whole.shape for one in arrays) or gap(arrays[0], arrays[-1]) == 0:
            continue
        guesses = [*arrays[1:], np.mean(arrays, axis=0), np.sum(arrays, axis=0)]
        if any(evidence.agrees("state", name, guess, whole) for guess in guesses):
            explained += 1
            names.append(name.partition("/")[2])
    if not explained:
        return None
    values = {"names": ", ".join(names[:4]), "count": len(names)}
    return RankFinding(explained, "state", values, tuple(names))
