"""Means over ranks with typical mistakes as options, for all ranks at once, in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dualml.course.exercise import RIGHT, Arrays, Flags
from dualml.course.mistakes import compute_mistaken
from dualml.course.places import Position, flags_at

Number = type[np.floating[Any]]


def average_gradients(
    ranks: Sequence[Arrays], flags: Flags = RIGHT, number: Number = np.float64
) -> list[dict[str, Any]]:
    """Compute on each rank the mean of every tensor ``t/NAME``, as ``0``, ``1``, …, weighted by the
    ranks' numbers of samples, with the typical mistakes named in ``flags``, in the dtype
    ``number``."""
    counts = [number(a["samples"]) for a in ranks]
    made = combine_tensors(
        ranks, number, flags, lambda r, i, own, f: combine_gradient(r, i, own, counts, f)
    )
    return select_results(made, flags)


def combine_tensors(
    ranks: Sequence[Arrays],
    number: Number,
    flags: Flags,
    combine: Callable[[int, Position, list[Any], Flags], Any],
) -> list[dict[str, Any]]:
    """Return for each rank ``0``, ``1``, …: what ``combine`` makes of the rank, of the position of
    a tensor ``t/NAME``, of every rank's tensor in the dtype ``number``, and of the mistakes that
    act there."""
    names = [key for key in ranks[0] if key[0] == "t"]
    every = [[a[name].astype(number) for a in ranks] for name in names]

    def result(r: int, i: int) -> Any:
        """Return one tensor of one rank."""
        here = flags_at(flags, rank=(r, len(ranks)), tensor=(i, len(names)))
        position = i, len(names)
        if not any("row=" in flag for flag in here):
            return combine(r, position, every[i], here)
        rows = every[i][r].shape[0] if every[i][r].ndim else 1
        parts = [combine(r, position, every[i], flags_at(here, row=(k, rows))) for k in range(rows)]
        return np.stack([parts[k][k] for k in range(rows)]) if every[i][r].ndim else parts[0]

    return [{str(i): result(r, i) for i in range(len(names))} for r in range(len(ranks))]


def select_results(made: Sequence[dict[str, Any]], flags: Flags) -> list[dict[str, Any]]:
    """Return what each rank's function returns of the tensors ``made`` on it: all of them, or, by
    the mistake ``one_result`` and its form ``one_result#2``, the last in every place, or the rows
    of the first."""

    def select(results: dict[str, Any], f: Flags) -> dict[str, Any]:
        """Return the results of one rank."""
        first, *_, last = results.values()
        mistaken = {
            "one_result": lambda: dict.fromkeys(results, last),
            "one_result#2": lambda: {str(i): row for i, row in enumerate(first)},
        }
        selected: dict[str, Any] = compute_mistaken(f, mistaken, lambda: results)
        return selected

    return [select(own, flags_at(flags, rank=(r, len(made)))) for r, own in enumerate(made)]


def combine_gradient(
    rank: int, tensor: Position, own: Sequence[Any], counts: Sequence[Any], f: Flags
) -> Any:
    """Return the mean of one tensor over the ranks, weighted by ``counts``, that one rank computes,
    as the typical mistakes named in ``f`` change it.

    Args:
        rank: number of the rank.
        tensor: number of the tensor, and number of tensors.
        own: each rank's tensor.
        counts: each rank's number of samples, in the type of the computation.
        f: mistakes.
    """
    number = type(counts[0])
    n, total, share = number(len(own)), sum(counts), counts[rank]
    weighted = [c * g for c, g in zip(counts, own, strict=True)]
    if (kept := keep_part(rank, tensor, own[rank], weighted[rank], "sum", f)) is not None:
        return kept
    replaced = {
        "sum_wrong_root": lambda: own[-1],
        "sum_whole_share": lambda: sum((c // total) * g for c, g in zip(counts, own, strict=True)),
        "sum_unweighted": lambda: sum(own) / n,
        "sum_undivided": lambda: sum(own),
    }

    def weigh(source: int, here: Flags) -> Any:
        """Return what a rank contributes, before the division."""
        mistaken = {
            "sum_weight_forgotten": lambda: own[source],
            "sum_weight_after": lambda: share * own[source],
            "sum_weight_after#2": lambda: counts[0] * own[source],
            "sum_weighted_twice": lambda: counts[source] * weighted[source],
        }
        return compute_mistaken(here, mistaken, lambda: weighted[source])

    denominators = {
        "sum_weighted_undivided": lambda: number(1),
        "sum_by_ranks": lambda: n,
        "sum_by_tensors": lambda: number(tensor[1]),
        "sum_own_count": lambda: share,
        "sum_root_count": lambda: counts[0],
        "sum_equal_counts": lambda: n * share,
        "sum_equal_counts#2": lambda: n * counts[0],
        "sum_mean_count": lambda: total / n,
        "sum_total_grows": lambda: total * n ** tensor[0],
        "sum_divided_twice": lambda: total * n,
        "sum_samples_twice": lambda: total * total,
        "sum_samples_twice#2": lambda: total * share,
    }
    mean = add_terms("sum", rank, len(own), f, weigh, denominators, total)
    finished = {
        "sum_floor": lambda: round_down(mean),
        "sum_shape_one": lambda: mean.reshape(mean.shape or (1,)),
    }
    return compute_mistaken(f, {**replaced, **finished}, lambda: mean)


def add_terms(
    kind: str,
    rank: int,
    ranks: int,
    f: Flags,
    weigh: Callable[[int, Flags], Any],
    denominators: Mapping[str, Callable[[], Any]],
    denominator: Any,
) -> Any:
    """Add up what all ranks contribute, and divide it, as the typical mistakes named in ``f`` do.

    Args:
        kind: ``sum`` or ``average``, with which the mistakes' names begin.
        rank: number of the rank that receives the sum; ``ranks`` is that of all.
        weigh: function of a contributing rank and of the mistakes that act there.
        denominators: mistake → function that returns its denominator.
        denominator: the right one.
    """
    own_twice = f"{kind}_own_twice"
    twice = {own_twice: rank, f"{own_twice}#2": 0, f"{own_twice}#3": rank}
    missing = {
        f"{kind}_own_missing": rank,
        f"{kind}_root_missing": 0,
        f"{kind}_last_missing": ranks - 1,
    }
    terms: dict[Any, Any] = {}
    for source in range(ranks):
        here = flags_at(f, source=(source, ranks))
        times = 1 + sum(twice[name] == source for name in twice if name in here)
        if any(missing[name] == source for name in missing if name in here) or (
            f"{kind}_own_share" in here and source != rank
        ):
            times = 0
        by = compute_mistaken(here, denominators, lambda: denominator)
        terms[by] = terms.get(by, 0) + times * weigh(source, here)
    with np.errstate(all="ignore"):  # n − 1 may be zero
        return sum(np.divide(term, by) for by, term in terms.items())


def round_down(values: Any) -> Any:
    """Round down to whole numbers; numbers less than 1e-5 below a whole one become that one, since
    rounding decides about them."""
    return np.floor(values + values.dtype.type(1e-5))


def keep_part(rank: int, tensor: Position, own: Any, local: Any, kind: str, f: Flags) -> Any | None:
    """Return what a rank is left with where a mistake of this ``kind`` keeps the result from it;
    None if it gets the result.

    Args:
        rank: number of the rank.
        tensor: number of the tensor, and number of tensors.
        own: the rank's tensor.
        local: what it contributes to the sum.
        kind: ``sum`` or ``average``, with which the mistakes' names begin.
        f: mistakes.
    """
    others = {f"{kind}_first_tensor": 0, f"{kind}_last_tensor": tensor[1] - 1}
    if any(name in f and tensor[0] != i for name, i in others.items()):
        return own
    names = [f"{kind}_local", *([f"{kind}_root_only"] if rank else ())]
    left = {"": own, "#2": np.zeros_like(own), "#3": local}
    return next((left[form] for name in names for form in left if name + form in f), None)


def average_parameters(
    ranks: Sequence[Arrays], flags: Flags = RIGHT, number: Number = np.float64
) -> list[dict[str, Any]]:
    """Compute on each rank the unweighted mean of every tensor ``t/NAME``, as ``0``, ``1``, …, with
    the typical mistakes named in ``flags``, in the dtype ``number``."""
    made = combine_tensors(ranks, number, flags, average_tensor)
    return select_results(made, flags)


def average_tensor(rank: int, tensor: Position, own: Sequence[Any], f: Flags) -> Any:
    """Return the unweighted mean of every rank's tensor ``own`` that one rank computes, as the
    typical mistakes named in ``f`` change it; ``rank`` is its number, ``tensor`` the tensor's and
    the number of tensors."""
    number = own[0].dtype.type
    n, one = number(len(own)), number(1)
    if (kept := keep_part(rank, tensor, own[rank], own[rank] / n, "average", f)) is not None:
        return kept
    replaced = {
        "average_root": lambda: own[0],
        "average_without_own": lambda: (sum(own) - own[rank]) / max(n - one, one),
        "average_pairs": lambda: average_in_turn(own),
    }
    denominators = {
        "average_sum": lambda: one,
        "average_divided_twice": lambda: n * n,
        "average_less_one": lambda: n - one,
        "average_less_one#2": lambda: max(n - one, one),
        "average_one_more": lambda: n + one,
        "average_own_twice#3": lambda: n + one,
        "average_halved": lambda: number(2),
        "average_by_tensors": lambda: number(tensor[1]),
        "average_count_grows": lambda: n ** (tensor[0] + 1),
    }
    mean = add_terms("average", rank, len(own), f, lambda r, here: own[r], denominators, n)
    replaced["average_floor"] = lambda: round_down(mean)
    replaced["average_elements"] = lambda: np.full_like(mean, mean.mean())
    return compute_mistaken(f, replaced, lambda: mean)


def average_in_turn(own: Sequence[Any]) -> Any:
    """Return rank 0's tensor averaged with the next rank's, this with the one after, and so on."""
    mean = own[0]
    for each in own[1:]:
        mean = (mean + each) / 2
    return mean


def all_reduce_seconds(options: Mapping[str, Any], size: int) -> float:
    """Return the seconds of one undisturbed all-reduce of ``size`` bytes, α + β · ``size``, by the
    options ``alpha`` (s) and ``beta`` (s per byte)."""
    return float(options["alpha"] + options["beta"] * size)
