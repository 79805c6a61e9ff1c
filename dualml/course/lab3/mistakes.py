"""Search for the typical mistake, and the place of it, that would make lists like a student's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from dualml.course.lab3 import detectors as d
from dualml.course.lab3 import orders
from dualml.course.lab3 import sampler_detectors as s
from dualml.course.lab3.lists import Ask, SampleLists
from dualml.course.lab3.properties import check_uniform

#: Mistakes that one rank, or one epoch, can make alone: they show in its lists by themselves.
LOCAL = (
    *("draw_not_repeatable", "draw_seed_ignored", "draw_epoch_ignored"),
    *("draw_never_twice", "draw_ends_missing", "draw_ends_rare", "draw_reordered"),
    *("deal_replaced", "deal_each_epoch", "deal_order_fixed", "deal_sorted", "deal_strided"),
    *("deal_blocks", "deal_order_seedless", "draw_epochs_shifted", "deal_whole"),
    *("sampler_exhausted", "sampler_goes_on", "sampler_length", "sampler_kind_ignored"),
    *("sampler_epoch_ignored", "sampler_counts_epochs"),
)
#: Mistakes that are named only if no other explains the lists.
GENERAL = ("draw_not_uniform",)
#: Number of epochs from which on one of them is not looked at alone.
MANY_EPOCHS = 10


def find_mistake(flags: Sequence[str], lists: SampleLists) -> tuple[str, ...]:
    """Return the first of the typical mistakes named in ``flags`` that is detected in all lists, or
    else in those of one place (``deal_sorted@rank=0``), in a tuple; an empty tuple if none is."""
    named = [name for name in flags if name not in GENERAL]
    found = next((name for name in named if DETECTORS[name](lists)), "")
    if found:
        return (found,)
    local = [name for name in named if name in LOCAL]
    for place, part in parts_of(lists):
        for name in local:
            if DETECTORS[name](part):
                return (f"{name}@{place}",)
    return tuple(name for name in flags if name in GENERAL and DETECTORS[name](lists))[:1]


def parts_of(lists: SampleLists) -> Iterator[tuple[str, SampleLists]]:
    """Yield places and the lists of these: each rank, all ranks but one, and, if there are few
    epochs, the first epoch and all others."""
    ranks, epochs = lists.asked_ranks, lists.epochs
    if len(ranks) > 1:
        last = ranks[-1]
        named = [(str(r), r) for r in ranks[:-1]] + [("-1", last)]
        for name, rank in named:
            yield f"rank={name}", select_lists(lists, partial(is_of_rank, rank))
        for name, rank in named:
            yield f"rank=!{name}", select_lists(lists, partial(is_of_other_rank, rank))
    if 1 < len(epochs) < MANY_EPOCHS:
        yield "epoch=0", select_lists(lists, lambda ask: ask[2] == epochs[0])
        yield "epoch=!0", select_lists(lists, lambda ask: ask[2] != epochs[0])


def is_of_rank(rank: int, ask: Ask) -> bool:
    """Return whether a list is of this rank."""
    return ask[0] == rank


def is_of_other_rank(rank: int, ask: Ask) -> bool:
    """Return whether a list is of another rank."""
    return ask[0] != rank


def select_lists(lists: SampleLists, wanted: d.AskFilter) -> SampleLists:
    """Return a copy with only the lists and lengths whose (rank, seed, epoch) is ``wanted``;
    ``kinds`` and ``dims`` still describe all lists."""

    def select(every: dict[Ask, object]) -> dict[Ask, object]:
        return {ask: a for ask, a in every.items() if wanted(ask)}

    names = ("first", "again", "loaded", "fresh", "apart", "lengths")
    parts = {name: select(getattr(lists, name)) for name in names}
    return replace(lists, **parts)  # type: ignore[arg-type]


DETECTORS: dict[str, d.Detector] = {
    "draw_no_integers": d.has_non_integers,
    "draw_from_one": d.starts_at_one,
    "draw_not_repeatable": d.is_unrepeatable,
    "draw_global": lambda lists: lists.touched,
    "draw_rank_ignored": d.ignores_rank,
    "draw_epoch_ignored": d.ignores_epoch,
    "draw_reordered": d.reorders_draws,
    "draw_seed_ignored": d.ignores_seed,
    "draw_seeds_added": lambda lists: d.adds_seeds(lists) or orders.adds_rank_and_epoch(lists),
    "draw_epochs_shifted": orders.adds_seed_and_epoch,
    "draw_never_twice": d.has_no_duplicates,
    "draw_own_part": d.draws_from_own_part,
    "draw_ends_missing": d.misses_ends,
    "draw_ends_rare": d.draws_ends_rarely,
    "draw_not_uniform": lambda lists: check_uniform(lists) is not None,
    "deal_whole": d.is_replicated,
    "deal_dropped": d.drops_remainder,
    "deal_padded": d.pads_remainder,
    "deal_ceiling": d.rounds_sizes_up,
    "deal_uneven": d.piles_remainder,
    "deal_borders": d.misses_borders,
    "deal_overlap": d.ranks_overlap,
    "deal_replaced": d.has_duplicates,
    "deal_each_epoch": d.repartitions_each_epoch,
    "deal_order_fixed": d.ignores_epoch,
    "deal_order_repeated": d.repeats_some_epoch,
    "deal_order_seedless": orders.ignores_seed_in_order,
    "deal_sorted": d.is_sorted,
    "deal_strided": d.is_strided,
    "deal_blocks": d.is_contiguous,
    "sampler_exhausted": s.second_pass_is_empty,
    "sampler_goes_on": s.second_pass_differs,
    "sampler_counts_epochs": s.counts_epochs,
    "sampler_shared_state": s.shares_state,
    "sampler_epoch_late": s.is_late,
    "sampler_unset": s.needs_set_epoch,
    "sampler_length": s.has_wrong_length,
    "sampler_epoch_ignored": d.ignores_epoch,
    "sampler_kind_ignored": d.has_no_duplicates,
}
