"""Check what a training method really did: compare its trials with its baseline's, and its samples
with those of the plan.

The settings of an arm cannot show that: a launcher may start one process instead of two, an engine
may skip a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.communicator.parts import slice_lengths
from dualml.common.words import Messages, numbers
from dualml.experiment.batches import BatchSampler
from dualml.experiment.plan import Plan
from dualml.experiment.sample_digest import SampleDigest
from dualml.experiment.store.agreement import is_divergence_reason
from dualml.experiment.store.run import RunData, Trial
from dualml.parallel.partition.base import split_by_sizes
from dualml.report.methods import MethodResult, is_plain

#: Per rank: number of samples it trained on, and the fingerprint of their order.
Samples = tuple[tuple[int, str], ...]


def exclusion_reason(way: MethodResult, words: Messages) -> str:
    """Return why a method is not ranked, as a sentence: its replicas diverged, it has no baseline
    with a common seed, it trained something else than its baseline, or its verdict excludes it.
    Empty if nothing excludes it, and for a plain arm (`is_plain`)."""
    if is_plain(way.arm_settings):
        return ""
    every = way.run.select(way.arm, way.backend, ok=False)
    if any(is_divergence_reason(t.reason) for t in every):
        return words("methods.apart")
    one = way.reference
    if one is None:
        return words("methods.unheld")
    pairs = list(_pairs(way, one))
    if not pairs:
        return words("methods.lost", arm=one.arm)
    did = (_difference(way, one, own, its, words) for own, its in pairs)
    return next(filter(None, did), "") or _verdict_reason(way, words)


def _pairs(way: MethodResult, one: MethodResult) -> Iterator[tuple[Trial, Trial]]:
    """Yield pairs (trial of the method, trial of its baseline) with the same seed; seeds that only
    one of the two has are left out."""
    theirs = {t.seed: t for t in one.trials}
    return ((t, theirs[t.seed]) for t in way.trials if t.seed in theirs)


def _difference(
    way: MethodResult, one: MethodResult, own: Trial, its: Trial, words: Messages
) -> str:
    """Return a sentence with the first difference between the method's trial ``own`` and the
    baseline's trial ``its`` (processes, tested samples, batch size, partition, updates, order of
    the samples); empty if there is none. Equal samples in equally many updates are no difference,
    whatever the settings say; where samples were not recorded, equal partition settings stand for
    them."""
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
    same = _same_samples(way.run, one, own, its, way.uses_engine_loader)
    if same is None:  # not recorded: compare the settings instead
        same = arm.partition == asked.partition
    if same and counts[0] == counts[1]:
        return ""
    if arm.batch_size != asked.batch_size:
        return words("methods.batch", n=arm.batch_size, asked=asked.batch_size)
    if arm.partition != asked.partition:
        return words("methods.samples", name=str(arm.partition.get("name", numbers.NO_VALUE)))
    if counts[0] != counts[1]:
        return words("methods.updates", own=own, its=its)
    return words("methods.order")


def _same_samples(
    run: RunData, one: MethodResult, own: Trial, its: Trial, engine_loader: bool
) -> bool | None:
    """Return whether the trial ``own`` trained on the samples of its baseline's trial ``its``; None
    if that was not recorded. With one rank, number and order must be equal; with several, each
    rank's must be those of the plan, or without a plan only the total numbers must be equal."""
    if not own.samples or not its.samples:
        return None
    if len(own.samples) == 1:
        return own.samples == its.samples
    if run.plan is not None:
        return own.samples == planned_samples(
            run.plan, one.arm, own.seed, own.processes, engine_loader
        )
    return sum(n for n, _ in own.samples) == sum(n for n, _ in its.samples)


def planned_samples(
    plan: Plan, arm: str, seed: int, processes: int, engine_loader: bool = False
) -> Samples:
    """Return a pair (number of samples, fingerprint of their order) for each of ``processes``
    ranks, in the order of the ranks: the samples of the whole training by the plan, if that many
    ranks run an arm of one rank.

    Args:
        plan: the plan of the run.
        arm: name of the single-rank arm, whose other settings are used.
        seed: seed of the trial.
        processes: number of ranks.
        engine_loader: whether an engine's loader partitions them, see
            `dualml.experiment.methods.MethodInfo`.
    """
    settings = plan.experiment.arms[arm].model_copy(update={"world_size": processes})
    feed, seen = plan.batch_sampler(settings, seed), SampleDigest()
    updates = plan.schedule(settings, seed).updates
    for step in range(1, updates + 1):
        for rank, part in enumerate(rank_parts(feed, step, settings.batch_size, engine_loader)):
            seen.add(rank, part)
    return tuple((seen.counts[rank], seen.rank_digests[rank]) for rank in sorted(seen.rank_digests))


def rank_parts(
    feed: BatchSampler, step: int, batch_size: int, engine_loader: bool
) -> Sequence[NDArray[np.int64]]:
    """Return the samples of each rank in an update, as indices into the training set.

    Args:
        feed: the batches of the training.
        step: number of the update, from 1.
        batch_size: size of a full batch; 0: each batch has all samples.
        engine_loader: whether an engine's loader partitions them, see
            `dualml.experiment.methods.MethodInfo`: it gives the first ranks their share of a full
            batch, and the last ones fewer samples, or none, of a short batch.
    """
    if not engine_loader:
        return feed.parts(step)
    batch = feed.batch(step)
    return split_by_sizes(batch, slice_lengths(len(batch), feed.ranks, batch_size or len(batch)))


def _verdict_reason(way: MethodResult, words: Messages) -> str:
    """Return a sentence that says why the verdict excludes a method from the ranking; empty if it
    does not."""
    for s in way.baseline_comparisons:
        if not s.verdict and s.reason != "precision":
            return words("methods.rule", rule=words.get(f"rule.{s.reason}", s.reason))
        if way.verdict == s.verdict == "not comparable":
            return words("methods.refused", reason=words.get(f"reason.{s.reason}", s.reason))
    if way.verdict != "different":
        return ""
    test = way.equivalence_test
    if test is None:
        return words("methods.different")
    return words("methods.accuracy", test=test, margin=f"{100 * test['margin']:g}")
