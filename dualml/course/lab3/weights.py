"""Weights of the ranks' gradients and losses in their sums, with typical mistakes as options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dualml.course.exercise import Flags
from dualml.course.places import flags_at

#: (number of this rank, of the sending rank) → weight.
Weigh = Callable[[int, int], Any]


def count_ranks_with_samples(sizes: Sequence[int]) -> int:
    """Return how many ranks have samples."""
    return sum(size > 0 for size in sizes)


def gradient_weights(
    sizes: Sequence[int], first: Sequence[int], number: Any
) -> Mapping[str, Weigh]:
    """Return mistake → function of (r, q) that returns the weight of rank q's gradient in the sum
    that rank r makes.

    Args:
        sizes: each rank's number of samples in this update.
        first: each rank's number of samples in the first update.
        number: dtype of the weights.
    """
    n = [number(size) for size in sizes]
    total, count = number(sum(sizes)), number(len(sizes))
    last = len(sizes) - 1

    def share(q: int) -> Any:
        return n[q] / total

    return {
        "update_summed": lambda r, q: number(1),
        "update_unweighted": lambda r, q: number(1) / count,
        "update_unweighted#2": lambda r, q: number(1) / number(count_ranks_with_samples(sizes)),
        "update_loss_sum": lambda r, q: n[q],
        "update_divided_twice": lambda r, q: share(q) / count,
        "update_sign": lambda r, q: -share(q),
        "update_times_ranks": lambda r, q: share(q) * count,
        "update_weighted_twice": lambda r, q: n[q] * share(q),
        "update_weighted_twice#2": lambda r, q: share(q) * share(q),
        "update_weighted_after": lambda r, q: share(r),
        "update_weighted_after#2": lambda r, q: n[r],
        "update_weighted_after#3": lambda r, q: share(r) / count,
        "update_wrong_total": lambda r, q: n[q] / count,
        "update_wrong_total#2": lambda r, q: n[q] / max(n),
        "update_wrong_total#3": lambda r, q: n[q] / max(n[r], number(1)),
        "update_wrong_total#4": lambda r, q: n[q] / (max(n[r], number(1)) * count),
        "update_wrong_total#5": lambda r, q: n[q] / number(sum(first)),
        "update_wrong_total#6": lambda r, q: n[q] / n[0],
        "update_wrong_total#7": lambda r, q: n[q] / (n[0] * count),
        "update_empty_as_one": lambda r, q: n[q] / number(sum(max(size, 1) for size in sizes)),
        "update_rank_missing": lambda r, q: share(q) * number(q != last),
        "update_rank_missing#2": lambda r, q: share(q) * number(q != 0),
        "update_rank_missing#3": lambda r, q: share(q) * number(q != r),
    }


#: End of the form of a mistake in the weights of the gradients that the losses have, too.
WITH_LOSS = "+loss"


def mark_with_loss(flag: str) -> str:
    """Return the flag of a mistake in the weights of the gradients with the ending `WITH_LOSS`: the
    form that changes the weights of the losses as well."""
    return f"{flag}{'' if '#' in flag else '#'}{WITH_LOSS}"


def split_with_loss(flags: Flags) -> tuple[Flags, bool]:
    """Return the flags without `WITH_LOSS`, and whether one of them had it."""
    plain = {f.replace(f"#{WITH_LOSS}", "").replace(WITH_LOSS, "") for f in flags}
    return frozenset(plain), any(WITH_LOSS in f for f in flags)


def loss_weights(sizes: Sequence[int], number: Any) -> Mapping[str, Weigh]:
    """Return mistake → function of (r, q) that returns the weight of rank q's loss in the sum that
    rank r reports.

    Args:
        sizes: each rank's number of samples in this update.
        number: dtype of the weights.
    """
    n = [number(size) for size in sizes]
    total, count = number(sum(sizes)), number(len(sizes))
    return {
        "update_loss_unweighted": lambda r, q: number(1) / count,
        "update_loss_unweighted#2": lambda r, q: (
            number(1) / number(count_ranks_with_samples(sizes))
        ),
        "update_loss_summed": lambda r, q: number(1),
        "update_loss_scaled": lambda r, q: n[q],
        "update_loss_scaled#2": lambda r, q: n[q] / total * count,
        "update_loss_scaled#3": lambda r, q: n[q] / total / count,
        "update_loss_scaled#4": lambda r, q: n[q] / count,
        "update_loss_scaled#5": lambda r, q: (n[q] / total) ** 2,
        "update_loss_scaled#6": lambda r, q: n[q] / max(n[r], number(1)),
    }


def weights_on_rank(
    rank: int, sizes: Sequence[int], f: Flags, mistaken: Mapping[str, Weigh], number: Any
) -> list[Any]:
    """Return the weight of each rank's number in the sum that ``rank`` makes: its fraction of all
    samples, or what the first of ``mistaken`` among the flags makes of it for that sender."""

    def weight(sender: int) -> Any:
        here = flags_at(f, sender=(sender, len(sizes)))
        weigh = next((mistaken[name] for name in mistaken if name in here), None)
        if weigh is None:
            return number(sizes[sender]) / number(sum(sizes))
        return weigh(rank, sender)

    return [weight(sender) for sender in range(len(sizes))]
