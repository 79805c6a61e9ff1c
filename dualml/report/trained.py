"""Check what a training method really did: compare its trials with its baseline's, and its samples
with those of the plan.

The settings of an arm cannot show that: a launcher may start one process instead of two, an engine
may skip a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dualml.communicator.parts import slices_of
from dualml.experiment.deals import Feed
from dualml.experiment.plan import Plan
from dualml.experiment.seen import Seen
from dualml.partition.base import cut
from dualml.report.methods import Way, plain
from dualml.store.agreement import trained_apart
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers

#: Per rank: number of samples it trained on, and the fingerprint of their order.
Samples = tuple[tuple[int, str], ...]


def wrong(way: Way, words: Words) -> str:
    """Return why a method is not ranked: it trained something else than its baseline, or has none.
    Empty if it did the same."""
    if plain(way.arm_settings):
        return ""
    every = way.run.select(way.arm, way.backend, ok=False)
    if any(trained_apart(t.reason) for t in every):
        return words("methods.apart")
    one = way.reference
    if one is None:
        return words("methods.unheld")
    pairs = list(_pairs(way, one))
    if not pairs:
        return words("methods.lost", arm=one.arm)
    did = (_other(way, one, own, its, words) for own, its in pairs)
    return next(filter(None, did), "") or _judged(way, words)


def _pairs(way: Way, one: Way) -> Iterator[tuple[Trial, Trial]]:
    """Yield the trials of a method with those of its baseline, paired by seed."""
    theirs = {t.seed: t for t in one.trials}
    return ((t, theirs[t.seed]) for t in way.trials if t.seed in theirs)


def _other(way: Way, one: Way, own: Trial, its: Trial, words: Words) -> str:
    """Return how a trial differs from the baseline's; empty if it does not."""
    asked, arm = one.arm_settings, way.arm_settings
    several = own.processes > 1
    if several and way.info is not None and not way.info.fits(several):  # by an older version
        return words("methods.separate", n=own.processes)
    if own.processes != arm.world_size:
        return words("methods.processes", n=own.processes, asked=arm.world_size)
    tested, test = (sum(map(sum, t.confusion)) for t in (own, its))
    if tested and test and tested != test:
        return words("methods.tested", n=tested, asked=test)
    counts = (own.updates, own.sample_gradients), (its.updates, its.sample_gradients)
    same = _same_samples(way.run, one, own, its, way.prepared)
    if same is None:  # not recorded: compare the settings instead
        same = arm.partition == asked.partition
    if same and counts[0] == counts[1]:
        return ""
    if arm.batch_size != asked.batch_size:
        return words("methods.batch", n=arm.batch_size, asked=asked.batch_size)
    if arm.partition != asked.partition:
        return words("methods.samples", name=str(arm.partition.get("name", numbers.NONE)))
    if counts[0] != counts[1]:
        return words("methods.updates", own=own, its=its)
    return words("methods.order")


def _same_samples(run: Run, one: Way, own: Trial, its: Trial, prepared: bool) -> bool | None:
    """Return whether a trial trained on the samples of its baseline's trial in the same order, each
    rank on its part; None if that was not recorded."""
    if not own.samples or not its.samples:
        return None
    if len(own.samples) == 1:
        return own.samples == its.samples
    if run.plan is not None:
        return own.samples == dealt(run.plan, one.arm, own.seed, own.processes, prepared)
    return sum(n for n, _ in own.samples) == sum(n for n, _ in its.samples)


def dealt(plan: Plan, arm: str, seed: int, processes: int, prepared: bool = False) -> Samples:
    """Return the samples that the plan assigns to ``processes`` ranks for an arm with one rank.

    Args:
        plan: the plan of the run.
        arm: the single-rank arm.
        seed: seed of the trial.
        processes: number of ranks.
        prepared: whether an engine's loader partitions them, see `dualml.methods.MethodInfo`.
    """
    settings = plan.experiment.arms[arm].model_copy(update={"world_size": processes})
    feed, seen = plan.feed(settings, seed), Seen()
    updates = plan.schedule(settings, seed).updates
    for step in range(1, updates + 1):
        for rank, part in enumerate(parts_at(feed, step, settings.batch_size, prepared)):
            seen.add(rank, part)
    return tuple((seen.counts[rank], seen.chains[rank]) for rank in sorted(seen.chains))


def parts_at(feed: Feed, step: int, batch_size: int, prepared: bool) -> Sequence[NDArray[np.int64]]:
    """Return the samples of each rank in an update.

    Args:
        feed: the batches of an epoch.
        step: number of the update.
        batch_size: size of a full batch; 0: each batch has all samples.
        prepared: whether an engine's loader partitions them, see `dualml.methods.MethodInfo`.
    """
    if not prepared:
        return feed.parts(step)
    batch = feed.batch(step)
    return cut(batch, slices_of(len(batch), feed.ranks, batch_size or len(batch)))


def _judged(way: Way, words: Words) -> str:
    """Return why the verdict excludes a method from the ranking; empty if it does not."""
    for s in way.judged:
        if not s.verdict and s.reason != "precision":
            return words("methods.rule", rule=words.either(f"rule.{s.reason}", s.reason))
        if way.verdict == s.verdict == "not comparable":
            return words("methods.refused", reason=words.either(f"reason.{s.reason}", s.reason))
    if way.verdict != "different":
        return ""
    test = way.over_seeds
    if test is None:
        return words("methods.different")
    return words("methods.accuracy", test=test, margin=f"{100 * test['margin']:g}")
