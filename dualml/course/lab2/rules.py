"""Reductions over ranks with typical mistakes as options, for all ranks at once, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags

Number = type[np.floating[Any]]


def average_gradients(
    ranks: Sequence[Arrays], flags: Flags = RIGHT, number: Number = np.float64
) -> list[dict[str, Any]]:
    """Compute on each rank the mean of every tensor ``t/NAME``, as ``0``, ``1``, …, weighted by the
    ranks' numbers of samples, with the mistakes ``flags``, in the dtype ``number``."""
    names = [key for key in ranks[0] if key[0] == "t"]
    counts = [number(a["samples"]) for a in ranks]
    out: list[dict[str, Any]] = [{} for _ in ranks]
    for i, name in enumerate(names):
        own = [a[name].astype(number) for a in ranks]
        for r, made in enumerate(out):
            made[str(i)] = combine_tensor(r, i, own, counts, flags)
    return out


def combine_tensor(
    rank: int, tensor: int, own: Sequence[Any], counts: Sequence[Any], f: Flags
) -> Any:
    """Combine one tensor on one rank.

    Args:
        rank, tensor: numbers of the rank and of the tensor.
        own: each rank's tensor.
        counts: each rank's number of samples, in the type of the computation.
        f: mistakes.
    """
    n, total = type(counts[0])(len(own)), sum(counts)
    weighted = [c * g for c, g in zip(counts, own, strict=True)]
    if ("sum_root_only" in f and rank) or ("sum_first_tensor" in f and tensor):
        return own[rank]
    if "sum_wrong_root" in f:
        return own[-1]
    if "sum_whole_share" in f:
        return sum((c // total) * g for c, g in zip(counts, own, strict=True))
    if "sum_unweighted" in f:
        return sum(own) / n
    if "sum_undivided" in f:
        return sum(own)
    if "sum_weighted_undivided" in f:
        return sum(weighted)
    if "sum_by_ranks" in f:
        return sum(weighted) / n
    if "sum_own_count" in f:
        return sum(weighted) / counts[rank]
    if "sum_root_count" in f:
        return sum(weighted) / counts[0]
    if "sum_own_missing" in f:
        return (sum(weighted) - weighted[rank]) / total
    if "sum_root_missing" in f:
        return (sum(weighted) - weighted[0]) / total
    mean = sum(weighted) / total
    return mean / n if "sum_divided_twice" in f else mean


def average_parameters(
    ranks: Sequence[Arrays], flags: Flags = RIGHT, number: Number = np.float64
) -> list[dict[str, Any]]:
    """Compute on each rank the unweighted mean of every tensor ``t/NAME``, as ``0``, ``1``, …, with
    the mistakes ``flags``, in the dtype ``number``."""
    names = [key for key in ranks[0] if key[0] == "t"]
    n = number(len(ranks))
    out: list[dict[str, Any]] = [{} for _ in ranks]
    for i, name in enumerate(names):
        own = [a[name].astype(number) for a in ranks]
        for r, made in enumerate(out):
            mean: Any = sum(own) / n
            if ("average_root_only" in flags and r) or ("average_first_tensor" in flags and i):
                mean = own[r]
            elif "average_sum" in flags:
                mean = sum(own)
            elif "average_root" in flags:
                mean = own[0]
            elif "average_without_own" in flags:
                mean = (sum(own) - own[r]) / max(n - 1, number(1))
            made[str(i)] = mean
    return out


def ring_all_reduce(
    ranks: Sequence[Arrays], flags: Flags = RIGHT, number: Number = np.float64
) -> list[dict[str, Any]]:
    """Compute for each rank ``sum``, its result of a ring all-reduce, ``messages`` and
    ``elements``, the numbers that it sends, and ``before``, its input; with the mistakes ``flags``,
    in the dtype ``number``."""
    n, shape = len(ranks), ranks[0]["t"].shape
    flat = [a["t"].astype(number).reshape(-1) for a in ranks]
    even = flat[0].size // n * n
    chunks = [
        list(np.split(x[:even], n) if "ring_remainder" in flags else np.array_split(x, n))
        for x in flat
    ]
    elements = [0] * n
    first = max(0, n - 1 - ("ring_reduce_short" in flags))
    second = max(0, n - 1 - ("ring_gather_short" in flags))
    for phase, steps in ((0, first), (1, second)):
        forward = flags & {"ring_forward", f"ring_forward#{phase + 2}"}
        for step in range(steps):
            send = [(r + phase + (step if forward else -step)) % n for r in range(n)]
            moved = [chunks[r][send[r]].copy() for r in range(n)]
            for r in range(n):
                left = (r - 1) % n
                at, came = send[left], moved[left]
                elements[r] += moved[r].size
                add = (phase == 0 and "ring_overwritten" not in flags) or (
                    phase == 1 and "ring_gather_adds" in flags
                )
                chunks[r][at] = chunks[r][at] + came if add else came
    whole = "ring_everything" in flags or "ring_whole" in flags
    out = []
    for r in range(n):
        total: Any = (
            sum(flat)
            if whole
            else np.concatenate(
                [*chunks[r], flat[r][even:]] if "ring_remainder" in flags else chunks[r]
            )
        )
        total = total / number(n) if "ring_mean" in flags else total
        sent = (n - 1) * flat[r].size if whole else elements[r]
        messages = n - 1 if whole else first + second
        out.append(
            {
                "sum": total.reshape(shape),
                "messages": np.array(messages, float),
                "elements": np.array(sent, float),
                "before": flat[r].reshape(shape),
            }
        )
    return out


def all_reduce_seconds(options: Mapping[str, Any], size: int) -> float:
    """Return the seconds of one undisturbed all-reduce of ``size`` bytes."""
    return float(options["alpha"] + options["beta"] * size)
