"""Detectors of typical mistakes in loaders, to find out why a property is violated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

import numpy as np

from dualml.course.loader.properties import MAX_STATE_CHARS, check_batches, check_coverage
from dualml.course.loader.runs import Batches, LoaderRun, Resumption, is_equal, join

Detector = Callable[[LoaderRun], bool]


def rank_sizes(run: LoaderRun) -> list[int]:
    """Return the ranks' numbers of samples if they are those of each epoch; else an empty list."""
    found = {tuple(len(a) for a in run.rank_samples(*time)) for time in run.times}
    return list(found.pop()) if len(found) == 1 else []


def has_size(size: Callable[[LoaderRun], int]) -> Detector:
    """Make a detector of loaders in which every rank has ``size`` samples, not the right number."""
    return lambda run: size(run) != run.share and rank_sizes(run) == [size(run)] * run.ranks


def is_uneven(run: LoaderRun) -> bool:
    """Return whether the ranks' numbers of samples add up to n but differ."""
    sizes = rank_sizes(run)
    return sum(sizes) == run.n and len(set(sizes)) > 1


def is_uneven_in_batches(run: LoaderRun) -> bool:
    """Return whether all batches are full, but some ranks have more of them than others."""
    sizes = rank_sizes(run)
    return len(set(sizes)) > 1 and all(size % run.batch == 0 for size in sizes)


def has_equal_parts(run: LoaderRun) -> bool:
    """Return whether all ranks have the same samples in the same order."""
    return all(
        np.array_equal(part, parts[0])
        for time in run.times
        for parts in [run.rank_samples(*time)]
        for part in parts[1:]
    )


def has_overlap(run: LoaderRun) -> bool:
    """Return whether the numbers of samples are right but some come too often, others never."""
    return rank_sizes(run) == [run.share] * run.ranks and check_coverage(run) is not None


def is_sorted(run: LoaderRun) -> bool:
    """Return whether each rank's samples are in ascending order; the last one, which may be
    padding, does not count."""
    return all((np.diff(join(batches))[:-1] > 0).all() for batches in run.first.values())


def same_in_epochs(run: LoaderRun, view: Callable[[Batches], object]) -> bool:
    """Return whether a view of a rank's batches is the same in all epochs, for every rank and
    seed."""
    return all(
        view(run.first[rank, seed, e]) == view(run.first[rank, seed, f])
        for rank in range(run.ranks)
        for seed in run.seeds
        for e, f in combinations(run.epochs, 2)
    )


def ignores_epoch(run: LoaderRun) -> bool:
    """Return whether each rank has the same batches in all epochs."""
    return same_in_epochs(run, lambda batches: [batch.tolist() for batch in batches])


def keeps_batches(run: LoaderRun) -> bool:
    """Return whether each rank has the same batches in all epochs, in any order."""
    return same_in_epochs(run, lambda batches: sorted(sorted(b.tolist()) for b in batches))


def keeps_parts(run: LoaderRun) -> bool:
    """Return whether each rank has the same samples in all epochs, in any order."""
    return same_in_epochs(run, lambda batches: sorted(join(batches).tolist()))


def ignores_seed(run: LoaderRun) -> bool:
    """Return whether all seeds give rank 0 the same order in each epoch."""
    return all(
        np.array_equal(run.samples((0, s, e)), run.samples((0, t, e)))
        for s, t in combinations(run.seeds, 2)
        for e in run.epochs
    )


def adds_seeds(run: LoaderRun) -> bool:
    """Return whether the next seed gives rank 0 in some epoch the order of this seed in the next
    one."""
    return any(
        np.array_equal(run.samples((0, s, e + 1)), run.samples((0, s + 1, e)))
        for s in run.seeds
        for e in run.epochs
        if {(0, s, e + 1), (0, s + 1, e)} <= run.first.keys()
    )


def ends_after_one_loop(run: LoaderRun) -> bool:
    """Return whether the second loop of some epoch is empty."""
    return any(len(batches) and not run.again[key] for key, batches in run.first.items())


def counts_epochs(run: LoaderRun) -> bool:
    """Return whether a second loop gives the order of the next epoch."""
    pairs = [(k, (k[0], k[1], k[2] + 1)) for k in run.first]
    known = [(run.again[k], run.fresh[after]) for k, after in pairs if after in run.fresh]
    return bool(known) and all(is_equal(a, b) for a, b in known)


def is_unseeded(run: LoaderRun) -> bool:
    """Return whether a new loader gives another order in the first epoch."""
    return any(
        not is_equal(batches, run.fresh[key])
        for key, batches in run.first.items()
        if key[2] == run.epochs[0]
    )


def second_loop_differs(run: LoaderRun) -> bool:
    """Return whether some second loop gives something else."""
    return any(not is_equal(batches, run.again[key]) for key, batches in run.first.items())


def has_batches_of(size: Callable[[LoaderRun], int]) -> Detector:
    """Make a detector of loaders whose batches have ``size`` samples, except for last ones."""
    return lambda run: (
        size(run) != run.batch
        and all(len(b) == size(run) for batches in run.first.values() for b in batches[:-1])
    )


def splits_evenly(run: LoaderRun) -> bool:
    """Return whether the batches of each loop differ by one sample at most, and are not the right
    ones."""
    return check_batches(run) is not None and all(
        max(sizes) - min(sizes) < 2
        for batches in run.first.values()
        for sizes in [[len(b) for b in batches] or [0]]
    )


def ends_with_empty_batch(run: LoaderRun) -> bool:
    """Return whether some loop has an empty batch."""
    return any(not len(b) for batches in run.first.values() for b in batches)


def has_length_of_samples(run: LoaderRun) -> bool:
    """Return whether ``len`` is a number of samples: the rank's, or all."""
    return all(
        run.lengths[key] in (len(join(batches)), run.n) for key, batches in run.first.items()
    )


def has_wrong_length(run: LoaderRun) -> bool:
    """Return whether some ``len`` is not the number of batches."""
    return any(run.lengths[key] != len(batches) for key, batches in run.first.items())


def all_resumed(test: Callable[[LoaderRun, Resumption], bool]) -> Detector:
    """Make a detector of loaders for all of whose resumptions a test holds."""
    return lambda run: bool(run.resumed) and all(test(run, r) for r in run.resumed)


def continues_at(by: int) -> Detector:
    """Make a detector of loaders that go on ``by`` batches after the right one."""
    return all_resumed(lambda run, r: is_equal(r.rest, run.first[r.key][max(r.after + by, 0) :]))


def forgets_epoch(run: LoaderRun, r: Resumption) -> bool:
    """Return whether a resumed loop is the rest of epoch 0 in place of its own."""
    return is_equal(r.rest, run.first[r.key[0], r.key[1], 0][r.after :])


def loses_position_in_set_epoch(run: LoaderRun, r: Resumption) -> bool:
    """Return whether the rest is right until ``set_epoch`` is called with the same epoch."""
    whole = run.first[r.key]
    return is_equal(r.rest, whole[r.after :]) and is_equal(r.reset, whole)


def keeps_position(run: LoaderRun, r: Resumption) -> bool:
    """Return whether the loop after the rest begins in the middle, too."""
    rank, seed, epoch = r.key
    following = run.first[rank, seed, epoch + 1]
    return is_equal(r.second_loop, run.first[r.key][r.after :]) or is_equal(
        r.following, following[r.after :]
    )


def has_same_rest_size(run: LoaderRun, r: Resumption) -> bool:
    """Return whether the rest has the right number of batches, whatever samples they have."""
    return len(r.rest) == len(run.first[r.key]) - r.after


def find_mistake(flags: Iterable[str], run: LoaderRun) -> tuple[str, ...]:
    """Return the first of the typical mistakes named in ``flags`` that is detected, in a tuple; an
    empty tuple if none is."""
    return next(((name,) for name in flags if DETECTORS[name](run)), ())


def round_up(count: int, multiple: int) -> int:
    """Return the smallest multiple that is not below ``count``."""
    return -(-count // multiple) * multiple


DETECTORS: dict[str, Detector] = {
    "load_unpaired": lambda run: run.unpaired > 0,
    "load_whole": lambda run: min(rank_sizes(run), default=0) >= run.n,
    "load_rank_ignored": has_equal_parts,
    "load_overlap": has_overlap,
    "load_dropped": has_size(lambda run: run.n // run.ranks),
    "load_uneven": is_uneven,
    "load_batch_dropped": has_size(lambda run: -(-run.n // run.ranks) // run.batch * run.batch),
    "load_padded_full": has_size(lambda run: round_up(-(-run.n // run.ranks), run.batch)),
    "load_last_kept": lambda run: any(
        0 < len(b) < run.batch for batches in run.first.values() for b in batches
    ),
    "load_drop_uneven": is_uneven_in_batches,
    "load_drop_padded": has_size(lambda run: -(-run.n // run.ranks) // run.batch * run.batch),
    "load_batch_total": has_batches_of(lambda run: run.batch // run.ranks),
    "load_batch_empty": ends_with_empty_batch,
    "load_batches_even": splits_evenly,
    "load_length_samples": has_length_of_samples,
    "load_length": has_wrong_length,
    "load_sorted": is_sorted,
    "load_epoch_ignored": ignores_epoch,
    "load_batches_fixed": keeps_batches,
    "load_part_fixed": keeps_parts,
    "load_seed_ignored": ignores_seed,
    "load_seeds_added": adds_seeds,
    "load_exhausted": ends_after_one_loop,
    "load_epoch_counted": counts_epochs,
    "load_unseeded": is_unseeded,
    "load_goes_on": second_loop_differs,
    "load_global": lambda run: run.touched,
    "resume_restarts": all_resumed(lambda run, r: is_equal(r.rest, run.first[r.key])),
    "resume_repeats": continues_at(-1),
    "resume_skips": continues_at(1),
    "resume_alive": all_resumed(lambda run, r: not r.rest and r.after < len(run.first[r.key])),
    "resume_epoch_lost": all_resumed(forgets_epoch),
    "resume_set_epoch": all_resumed(loses_position_in_set_epoch),
    "resume_sticks": all_resumed(keeps_position),
    "resume_order": all_resumed(has_same_rest_size),
    "state_large": lambda run: any(r.characters > MAX_STATE_CHARS for r in run.resumed),
}
