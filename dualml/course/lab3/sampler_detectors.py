"""Detectors of typical mistakes in what samplers gave: whether a mistake would make lists like
these."""

from __future__ import annotations

import numpy as np

from dualml.course.lab3.lists import SampleLists
from dualml.course.lab3.properties import check_repeatable


def second_pass_is_empty(lists: SampleLists) -> bool:
    """Return whether some second loop over a sampler is empty although the first is not."""
    return any(len(a) > 0 and not len(lists.again[ask]) for ask, a in lists.first.items())


def second_pass_differs(lists: SampleLists) -> bool:
    """Return whether a second loop over a sampler gives something else, and none is empty after one
    that was not."""
    return not second_pass_is_empty(lists) and check_repeatable(lists) is not None


def counts_epochs(lists: SampleLists) -> bool:
    """Return whether a second loop in the first epoch always gives what one of the next two epochs
    gives, as if each loop began a new epoch."""
    now, *later = lists.epochs[:3]
    asked = [(rank, seed) for rank in lists.asked_ranks for seed in lists.seeds]
    return len(later) > 1 and all(
        not np.array_equal(lists.first[(*ask, now)], lists.again[(*ask, now)])
        and any(
            np.array_equal(lists.again[(*ask, now)], lists.first[(*ask, epoch)]) for epoch in later
        )
        for ask in asked
    )


def shares_state(lists: SampleLists) -> bool:
    """Return whether samplers always give what belongs to the epoch that was set on another one
    after theirs, as with an epoch that all of them share. In epoch 0 a new sampler's is not set."""
    pairs = [
        (a, lists.apart[ask], lists.fresh[ask])
        for ask, a in lists.first.items()
        if len(a) and ask[2]
    ]
    return bool(lists.apart) and all(
        np.array_equal(a, apart) and not np.array_equal(a, fresh) for a, apart, fresh in pairs
    )


def is_late(lists: SampleLists) -> bool:
    """Return whether the second epoch is always the same as the first one, and the third is not
    unless the sampler is new, as if an epoch took effect one call of ``set_epoch`` late."""
    asked = [(rank, seed) for rank in lists.asked_ranks for seed in lists.seeds]
    if len(lists.epochs) < 3 or not lists.fresh:
        return False
    zero, one, two = lists.epochs[:3]
    return all(
        np.array_equal(lists.first[(*ask, zero)], lists.first[(*ask, one)])
        and np.array_equal(lists.first[(*ask, zero)], lists.fresh[(*ask, two)])
        and not np.array_equal(lists.first[(*ask, zero)], lists.first[(*ask, two)])
        for ask in asked
    )


def needs_set_epoch(lists: SampleLists) -> bool:
    """Return whether new samplers give nothing, or something else, in epoch 0 and are right in all
    epochs that are set."""
    same = {ask: np.array_equal(a, lists.fresh[ask]) for ask, a in lists.first.items() if len(a)}
    return bool(same) and all(is_same == (ask[2] > 0) for ask, is_same in same.items())


def has_wrong_length(lists: SampleLists) -> bool:
    """Return whether ``len`` of some sampler is not the number of its samples."""
    return any(len(a) != lists.lengths[ask] for ask, a in lists.first.items())
