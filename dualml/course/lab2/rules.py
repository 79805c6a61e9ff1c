"""Reductions over ranks with typical mistakes as options, for all ranks at once, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.mistakes import compute_mistaken
from dualml.course.places import flags_at

Number = type[np.floating[Any]]


def average_gradients(
    ranks: Sequence[Arrays], flags: Flags = RIGHT, number: Number = np.float64
) -> list[dict[str, Any]]:
    """Compute on each rank the mean of every tensor ``t/NAME``, as ``0``, ``1``, …, weighted by the
    ranks' numbers of samples, with the mistakes ``flags``, in the dtype ``number``."""
    counts = [number(a["samples"]) for a in ranks]
    return combine_tensors(
        ranks, number, flags, lambda r, i, own, f: combine_gradient(r, i, own, counts, f)
    )


def combine_tensors(
    ranks: Sequence[Arrays],
    number: Number,
    flags: Flags,
    combine: Callable[[int, int, list[Any], Flags], Any],
) -> list[dict[str, Any]]:
    """Return for each rank ``0``, ``1``, …: what ``combine`` makes of the numbers of the rank and
    of a tensor ``t/NAME``, of every rank's tensor in the dtype ``number``, and of the mistakes that
    act there."""
    names = [key for key in ranks[0] if key[0] == "t"]
    every = [[a[name].astype(number) for a in ranks] for name in names]

    def result(r: int, i: int) -> Any:
        """Return one tensor of one rank."""
        here = flags_at(flags, rank=(r, len(ranks)), tensor=(i, len(names)))
        return combine(r, i, every[i], here)

    return [{str(i): result(r, i) for i in range(len(names))} for r in range(len(ranks))]


def combine_gradient(
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
    mistaken = {
        "sum_wrong_root": lambda: own[-1],
        "sum_whole_share": lambda: sum((c // total) * g for c, g in zip(counts, own, strict=True)),
        "sum_unweighted": lambda: sum(own) / n,
        "sum_undivided": lambda: sum(own),
        "sum_weighted_undivided": lambda: sum(weighted),
        "sum_by_ranks": lambda: sum(weighted) / n,
        "sum_own_count": lambda: sum(weighted) / counts[rank],
        "sum_root_count": lambda: sum(weighted) / counts[0],
        "sum_own_missing": lambda: (sum(weighted) - weighted[rank]) / total,
        "sum_root_missing": lambda: (sum(weighted) - weighted[0]) / total,
        "sum_divided_twice": lambda: sum(weighted) / total / n,
    }
    return compute_mistaken(f, mistaken, lambda: sum(weighted) / total)


def average_parameters(
    ranks: Sequence[Arrays], flags: Flags = RIGHT, number: Number = np.float64
) -> list[dict[str, Any]]:
    """Compute on each rank the unweighted mean of every tensor ``t/NAME``, as ``0``, ``1``, …, with
    the mistakes ``flags``, in the dtype ``number``."""
    return combine_tensors(ranks, number, flags, average_tensor)


def average_tensor(rank: int, tensor: int, own: Sequence[Any], f: Flags) -> Any:
    """Return the unweighted mean of every rank's tensor ``own`` that one rank computes, as the
    mistakes ``f`` change it; ``rank`` and ``tensor`` are numbers."""
    number = own[0].dtype.type
    if ("average_root_only" in f and rank) or ("average_first_tensor" in f and tensor):
        return own[rank]
    mistaken = {
        "average_sum": lambda: sum(own),
        "average_root": lambda: own[0],
        "average_without_own": lambda: (sum(own) - own[rank]) / number(max(len(own) - 1, 1)),
    }
    return compute_mistaken(f, mistaken, lambda: sum(own) / number(len(own)))


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
