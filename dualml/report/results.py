"""Results of an arm on one backend over its seeds, and tests for differences between two arms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, Trial
from dualml.parity.statistics import MIN_SEEDS, check_equivalence
from dualml.report import ranks
from dualml.report.confidence import MeanInterval, mean_interval, paired_interval
from dualml.report.measures import epoch_seconds


def _seed_values(what: Callable[[Trial], float | None]) -> cached_property[dict[int, float]]:
    """Return a cached property: seed → the value of a trial, for the trials that have one."""

    def by_seed(result: ArmResult) -> dict[int, float]:
        values = {t.seed: what(t) for t in result.trials}
        return {seed: float(v) for seed, v in values.items() if numbers.is_finite_number(v)}

    return cached_property(by_seed)


def _mean_over_seeds(
    values: Callable[[ArmResult], Iterable[float | None]],
) -> cached_property[MeanInterval | None]:
    """Return a cached property: the mean of the values with its confidence interval."""
    return cached_property(lambda result: mean_interval(values(result)))


@dataclass(frozen=True, eq=False)
class ArmResult:
    """Results of the successful trials of an arm on one backend; None for unknown quantities.

    By seed (seed → value): ``steps``, seconds of an update, ``accuracies`` on the test set,
    ``losses``, the final ones. Means over the seeds with their intervals (`MeanInterval`): ``step``
    (including the time between two updates) and ``epoch`` in seconds, ``rate`` in samples per
    second, ``accuracy`` as a fraction, ``loss``, ``updates``, ``share`` of the time spent on
    communication.
    """

    run: RunData = field(repr=False)
    arm: str
    backend: str

    @cached_property
    def trials(self) -> list[Trial]:
        """Successful trials of the arm on the backend, one per seed."""
        return self.run.select(self.arm, self.backend)

    steps = _seed_values(ranks.step_seconds)
    accuracies = _seed_values(lambda t: t.test_accuracy)
    losses = _seed_values(lambda t: t.final_loss)
    step = _mean_over_seeds(lambda result: result.steps.values())
    accuracy = _mean_over_seeds(lambda result: result.accuracies.values())
    loss = _mean_over_seeds(lambda result: result.losses.values())
    epoch = _mean_over_seeds(lambda result: [epoch_seconds(result.run, t) for t in result.trials])
    rate = _mean_over_seeds(lambda result: [t.throughput for t in result.trials])
    updates = _mean_over_seeds(lambda result: [t.updates for t in result.trials])
    share = _mean_over_seeds(lambda result: [t.communication_share for t in result.trials])


R = TypeVar("R", bound=ArmResult)


def arm_results(run: RunData, arms: Iterable[str]) -> list[ArmResult]:
    """Return the results of arms on every backend with a successful trial."""
    return [ArmResult(run, *place) for place in ranks.successful_places(run, arms)]


def format_results(among: Iterable[R], text: Callable[[R], str]) -> str:
    """Return the values of a figure as text, e.g. ``ring torch 1.2, ring mindspore 1.3``, without
    those that are a dash; a dash if all are."""
    known = [(r, value) for r in among if (value := text(r)) != numbers.NO_VALUE]
    return ", ".join(f"{r.arm} {r.backend} {value}" for r, value in known) or numbers.NO_VALUE


# --- two of them ------------------------------------------------------------------------------

Kind = Literal["equal", "apart", "open", "few"]


@dataclass(frozen=True)
class Gap:
    """Difference of two arms' test accuracies, as a fraction, paired by seed.

    ``kind``: ``equal`` within one percentage point (two one-sided tests at 5 %), ``apart`` if the
    95 % interval excludes zero, ``open`` if neither, ``few`` if there are too few seeds for an
    interval. ``low`` and ``high`` bound the 90 % interval, to which the tests are equivalent; with
    ``few`` seeds they are the extremes.
    """

    kind: Kind
    mean: float
    low: float
    high: float
    seeds: int


def accuracy_gap(a: ArmResult, b: ArmResult) -> Gap | None:
    """Return the test accuracy of ``a`` minus that of ``b``; None without a common seed."""
    difference = paired_interval(a.accuracies, b.accuracies, lambda x, y: x - y)
    if difference is None:
        return None
    if difference.seeds < MIN_SEEDS:
        return Gap("few", difference.mean, *difference.bounds, difference.seeds)
    seeds = [seed for seed in a.accuracies if seed in b.accuracies]
    test = check_equivalence([a.accuracies[s] for s in seeds], [b.accuracies[s] for s in seeds])
    low, high = difference.bounds
    kind: Kind = "equal" if test["equivalent"] else "apart" if low > 0 or high < 0 else "open"
    return Gap(kind, difference.mean, test["low"], test["high"], len(seeds))


def format_gap(gap: Gap, words: Messages) -> str:
    """Return a gap as text, ``−3.20 points (−4.10 … −2.30)``; with too few seeds for an interval
    the mean with the number of seeds instead."""
    if gap.kind == "few":
        return words.plural("gap.told_few", gap.seeds, gap=gap)
    return words("gap.told", gap=gap)


def format_gaps(gaps: dict[str, Gap], words: Messages) -> list[str]:
    """Return the gaps of arms as texts, one per arm; without intervals if all have too few seeds
    for one."""
    few = all(g.kind == "few" for g in gaps.values())
    return [
        f"{arm} {words('gap.points', gap=g) if few else format_gap(g, words)}"
        for arm, g in gaps.items()
    ]
