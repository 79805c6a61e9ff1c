"""Properties that loaders of all ranks must have: each returns its first violation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np

from dualml.course.exercise import Array
from dualml.course.lab3.lists import Violation
from dualml.course.loader.runs import Batches, LoaderRun, is_equal, join

Property = Callable[[LoaderRun], Violation | None]
#: Maximum characters of a state as JSON: numbers, not a list of samples.
MAX_STATE_CHARS = 120


def format_samples(a: Array) -> str:
    """Format the first six samples of a list, with an ellipsis if there are more."""
    return "[" + ", ".join(str(int(i)) for i in a[:6]) + (", …]" if len(a) > 6 else "]")


def check_rows(run: LoaderRun) -> Violation | None:
    """Check that all rows are samples, each with its own label. Return the first violation, or
    None."""
    for key, batches in run.first.items():
        if np.any(join(batches) < 0):
            return Violation(f"rows of x in {run.title(key)}", "no sample of the data", "samples")
    if run.unpaired:
        return Violation("rows with another sample's y", run.unpaired, 0)
    return None


def check_shares(run: LoaderRun) -> Violation | None:
    """Check that every rank has as many samples as it should. Return the first violation, or
    None."""
    for seed, epoch in run.times:
        sizes = [len(a) for a in run.rank_samples(seed, epoch)]
        if sizes != [run.share] * run.ranks:
            some = run.title((0, seed, epoch)).replace(", 0, ", ", r, ", 1)
            what = f"[samples of {some} for r in range({run.ranks})]"
            return Violation(what, sizes, [run.share] * run.ranks)
    return None


def check_coverage(run: LoaderRun) -> Violation | None:
    """Check that over all ranks each sample comes once, or with a padded end at least once and at
    most twice; with ``drop_last`` at most once. Return the first violation, or None."""
    low, high = (0, 1) if run.drop_last else (1, 1 + (run.n % run.ranks > 0))
    for seed, epoch in run.times:
        counts = np.bincount(np.concatenate(run.rank_samples(seed, epoch)), minlength=run.n)
        off = (counts < low) | (counts > high)
        if off.any():
            sample = int(np.argmax(off))
            where = f"times that sample {sample} comes, seed {seed}, epoch {epoch}, all ranks"
            right = str(low) if low == high else f"{low} – {high}"
            return Violation(where, int(counts[sample]), right)
    return None


def check_batches(run: LoaderRun) -> Violation | None:
    """Check that each batch is full, except for a last one with the remainder of the rank. Return
    the first violation, or None."""
    full, rest = divmod(run.share, run.batch)
    right = [run.batch] * full + [rest] * (rest > 0)
    for key, batches in run.first.items():
        sizes = [len(batch) for batch in batches]
        if sizes != right:
            return Violation(f"[len(x) for x, y in {run.title(key)}]", sizes, right)
    return None


def check_lengths(run: LoaderRun) -> Violation | None:
    """Check that ``len`` is the number of batches of an epoch. Return the first violation, or
    None."""
    for key, batches in run.first.items():
        if run.lengths[key] != len(batches):
            return Violation(f"len({run.title(key)})", run.lengths[key], len(batches))
    return None


def check_unsorted(run: LoaderRun) -> Violation | None:
    """Check that no rank's samples are sorted. Return the first violation, or None."""
    for key, batches in run.first.items():
        samples = join(batches)
        if len(samples) > 3 and (np.diff(samples) > 0).all():
            return Violation(run.title(key), format_samples(samples), "shuffled")
    return None


def check_epochs_differ(run: LoaderRun) -> Violation | None:
    """Check that a rank has another order in every epoch. Return the first violation, or None."""
    for rank in range(run.ranks):
        for seed in run.seeds:
            for e, f in combinations(run.epochs, 2):
                a, b = (rank, seed, e), (rank, seed, f)
                if np.array_equal(run.samples(a), run.samples(b)):
                    return Violation(f"{run.title(a)} == {run.title(b)}", True, False)
    return None


def check_parts_differ(run: LoaderRun) -> Violation | None:
    """Check that not every rank keeps its samples from epoch to epoch: all are shuffled anew.
    Return the first violation, or None."""
    for seed in run.seeds:
        parts = [
            [sorted(set(run.samples((rank, seed, e)).tolist())) for rank in range(run.ranks)]
            for e in run.epochs
        ]
        if all(part == parts[0] for part in parts[1:]):
            a, b = ((0, seed, e) for e in run.epochs[:2])
            return Violation(f"set({run.title(a)}) == set({run.title(b)})", True, False)
    return None


def check_seeds_differ(run: LoaderRun) -> Violation | None:
    """Check that no order of rank 0 occurs with two seeds, be it in the same epoch or in different
    ones. Return the first violation, or None."""
    for s, t in combinations(run.seeds, 2):
        for e in run.epochs:
            for f in run.epochs:
                a, b = (0, s, e), (0, t, f)
                if np.array_equal(run.samples(a), run.samples(b)):
                    return Violation(f"{run.title(a)} == {run.title(b)}", True, False)
    return None


def check_repeatable(run: LoaderRun) -> Violation | None:
    """Check that a second loop, a new loader, and the same epoch later give the same batches.
    Return the first violation, or None."""
    for key, batches in run.first.items():
        for name, other in (
            ("second loop", run.again[key]),
            ("new Loader", run.fresh[key]),
            ("set_epoch again", run.later.get(key, batches)),
        ):
            if not is_equal(batches, other):
                shown = format_samples(join(other)), format_samples(join(batches))
                return Violation(f"{name}, {run.title(key)}", *shown)
    return None


def check_generators(run: LoaderRun) -> Violation | None:
    """Check that no global generator is changed. Return the first violation, or None."""
    return Violation("global generators unchanged", False, True) if run.touched else None


def check_resumption(run: LoaderRun) -> Violation | None:
    """Check that a loader with the state of another goes on with the next batch, and afterwards
    gives whole epochs. Return the first violation, or None."""
    for r in run.resumed:
        rank, seed, epoch = r.key
        after = f"state after {r.after} batches of {run.title(r.key)}"
        whole = run.first[r.key]
        for what, seen, right in (
            ("same loop", r.kept, whole[r.after :]),
            ("rest", r.rest, whole[r.after :]),
            ("rest, set_epoch of this epoch", r.reset, whole[r.after :]),
            ("second loop", r.second_loop, whole),
            ("next epoch", r.following, run.first[rank, seed, epoch + 1]),
        ):
            if not is_equal(seen, right):
                return Violation(f"{after}: {what}", describe(seen), describe(right))
        if r.characters > MAX_STATE_CHARS:
            return Violation(f"{after}: len(json)", r.characters, f"<= {MAX_STATE_CHARS}")
    return None


def describe(batches: Batches) -> str:
    """Describe batches: their number and their first samples."""
    return f"{len(batches)}: {format_samples(join(batches))}"
