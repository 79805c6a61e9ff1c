"""Measuring, diagnosing and mending a bottleneck, with typical mistakes as options, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.drive_bottleneck import KINDS
from dualml.course.exercise import Array, Arrays, Flags
from dualml.course.lab3.rank_optimizer import WEIGHTS
from dualml.course.lab3.rules import loss_and_gradient
from dualml.course.mistakes import compute_mistaken

#: Factor by which a rank is busy longer than the others if it is a bottleneck.
THRESHOLD = 1.2


def measured_times(ranks: Sequence[Arrays], rounds: int, f: Flags, number: Any) -> Array:
    """Compute the medians over the rounds 1 to ``rounds`` of each rank's seconds of computing,
    sending and waiting, (ranks, 3), as the typical mistakes named in ``f`` measure them; round 0
    only warms up. Each rank has the arrays of `SimulatedNode`."""
    c, t = (np.array([own[k] for own in ranks], number) for k in ("compute", "transfer"))
    late, offset = (np.array([[own[k]] for own in ranks], number) for k in ("late", "offset"))
    busy = c + t
    arrival = busy + late * (np.arange(c.shape[1]) == 0)
    wait = arrival.max(0) - arrival
    if "bn_no_barrier" in f:
        wait = np.zeros_like(wait)
    if "bn_clocks_compared" in f:
        ahead = arrival + offset
        wait = ahead.max(0) - ahead
    if "bn_wait_is_round" in f:
        wait = wait + busy
    if "bn_wait_in_transfer" in f:
        t, wait = t + wait, np.zeros_like(wait)
    columns = (t, c, wait) if "bn_columns_swapped" in f else (c, t, wait)
    chosen = slice(1, rounds + 1)
    for flag, other in (
        ("bn_first_counted", slice(0, rounds + 1)),
        ("bn_first_counted#2", slice(0, rounds)),
        ("bn_round_missing", slice(1, rounds)),
        ("bn_last_round", slice(rounds, rounds + 1)),
    ):
        chosen = other if flag in f else chosen
    mistaken: Mapping[str, Callable[[], Any]] = {
        "bn_mean": lambda: np.mean,
        "bn_total": lambda: np.sum,
        "bn_minimum": lambda: np.min,
    }
    reduce: Any = compute_mistaken(f, mistaken, lambda: np.median)
    table: Array = np.stack([reduce(column[:, chosen], axis=1) for column in columns], 1)
    return table


def diagnose(table: Array, f: Flags) -> tuple[str, int]:
    """Return the kind of bottleneck in a table of times (ranks, 3), ``compute`` or ``link``, and
    its rank, as the typical mistakes named in ``f`` see it; ``none`` and −1 without one. The
    columns are the seconds of computing, sending and waiting."""
    compute, transfer, wait = table.T
    busy = compute + transfer
    mistaken: Mapping[str, Callable[[], Any]] = {
        "bn_waiting_rank": lambda: wait.argmax(),
        "bn_compute_alone": lambda: compute.argmax(),
    }
    slow = int(compute_mistaken(f, mistaken, lambda: busy.argmax()))
    others = np.arange(len(table)) != slow
    usual = np.mean(busy) if "bn_mean_of_all" in f else np.median(busy[others])
    if busy[slow] <= THRESHOLD * usual and "bn_always" not in f:
        return "none", -1
    c, t = np.median(compute[others]), np.median(transfer[others])
    kinds: Mapping[str, Callable[[], Any]] = {
        "bn_larger_part": lambda: compute[slow] >= transfer[slow],
        "bn_ratio": lambda: compute[slow] / c >= transfer[slow] / t,
        "bn_kind_swapped": lambda: compute[slow] - c < transfer[slow] - t,
    }
    is_compute = compute_mistaken(f, kinds, lambda: compute[slow] - c >= transfer[slow] - t)
    return KINDS[1 if is_compute else 2], slow + ("bn_from_one" in f)


def ideal_sizes(n: int, seconds: Sequence[float]) -> Array:
    """Return the real numbers of samples, ``n`` together, with which all ranks finish at the same
    time; ``seconds`` is each rank's time for one sample."""
    speed = 1 / np.asarray(seconds, np.float64)
    sizes: Array = n * speed / speed.sum()
    return sizes


def mistaken_sizes(n: int, seconds: Sequence[float], flag: str) -> Array:
    """Return the ranks' numbers of samples, float64, that the mistake ``flag`` gives for a batch of
    ``n``; ``seconds`` is each rank's time for one sample."""
    ideal, ranks = ideal_sizes(n, seconds), len(seconds)
    floor = np.floor(ideal)
    first = np.arange(ranks) == 0
    found: Mapping[str, Callable[[], Any]] = {
        "bn_split_even": lambda: np.array([len(p) for p in np.array_split(np.arange(n), ranks)]),
        "bn_split_floor": lambda: floor,
        "bn_split_round": lambda: np.round(ideal),
        "bn_split_rest_first": lambda: floor + (n - floor.sum()) * first,
        "bn_split_rest_last": lambda: floor + (n - floor.sum()) * first[::-1],
        "bn_split_floats": lambda: ideal,
    }
    return np.asarray(found[flag](), np.float64)


def is_inverse(n: int, seconds: Sequence[float], sizes: Array) -> bool:
    """Return whether the ranks' numbers of samples are in proportion to their seconds for one
    sample, within one sample, instead of to their speeds."""
    ideal = n * np.asarray(seconds) / sum(seconds)
    return bool(np.all(np.abs(sizes - ideal) < 1 + 1e-9))


def combine_gradients(every: Sequence[Any], sizes: Sequence[Any], rank: int, f: Flags) -> Any:
    """Return the gradient of a parameter by which ``rank`` updates: the mean of all ranks'
    gradients ``every`` weighted by ``sizes``, as the typical mistakes named in ``f`` change it."""
    total, ranks = sum(sizes), type(sizes[0])(len(sizes))
    weighted = sum(g * (size / total) for g, size in zip(every, sizes, strict=True))
    mistaken: Mapping[str, Callable[[], Any]] = {
        "bn_unweighted": lambda: sum(every) / ranks,
        "bn_summed": lambda: sum(every),
        "bn_local": lambda: every[rank],
        "bn_divided_twice": lambda: weighted / ranks,
        "bn_size_not_divided": lambda: weighted * total,
    }
    return compute_mistaken(f, mistaken, lambda: weighted)


def balanced_training(
    options: Mapping[str, Any], ranks: Sequence[Arrays], f: Flags, number: Any
) -> list[Arrays]:
    """Compute on each rank ``3/w1``, the parameter after update 3, and ``3/rows``, the number of
    samples that its model has seen in it."""
    h, n, count = options["hyper"], len(ranks[0]["y/1"]), len(ranks)
    sizes = list(h["sizes"])
    if "bn_parts_even" in f:
        sizes = [len(part) for part in np.array_split(np.arange(n), count)]
    starts = [0] * count if "bn_same_part" in f else [sum(sizes[:r]) for r in range(count)]
    if "bn_whole_batch" in f:
        starts, sizes = [0] * count, [n] * count
    lr = number(h["lr"])
    weights = [{w: own[f"p/{w}"].astype(number) for w in WEIGHTS} for own in ranks]
    out: list[dict[str, Any]] = [{} for _ in ranks]
    for step in range(1, options["steps"] + 1):
        found = []
        for p, own, start, size in zip(weights, ranks, starts, sizes, strict=True):
            part = slice(start, start + size)
            x, y = (own[f"{name}/{step}"].astype(number)[part] for name in ("x", "y"))
            found.append(loss_and_gradient(p, own["p/shift"].astype(number), x, y)[1])
        for rank, p in enumerate(weights):
            for name in WEIGHTS:
                every = [gradient[name] for gradient in found]
                g = combine_gradients(every, [number(s) for s in sizes], rank, f)
                p[name] = p[name] - lr * g
            out[rank] |= {f"{step}/{name}": p[name] for name in WEIGHTS}
            out[rank][f"{step}/rows"] = np.asarray(float(sizes[rank]))
    return [dict(own) for own in out]
