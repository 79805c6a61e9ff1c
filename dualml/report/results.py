"""What the seeds of an arm came to on one backend, and whether they show two arms equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeVar

from dualml.parity.statistics import ENOUGH, equivalent
from dualml.report import ranks
from dualml.report.measures import epoch_seconds
from dualml.report.spread import Spread, paired, spread
from dualml.store.run import Run, Trial
from dualml.words import Words, numbers


def _seeds(what: Callable[[Trial], float | None]) -> cached_property[dict[int, float]]:
    """Seed → what a trial knows, of those that do."""

    def by_seed(result: Result) -> dict[int, float]:
        values = {t.seed: what(t) for t in result.trials}
        return {seed: float(v) for seed, v in values.items() if numbers.known(v)}

    return cached_property(by_seed)


def _mean(values: Callable[[Result], Iterable[float | None]]) -> cached_property[Spread | None]:
    return cached_property(lambda result: spread(values(result)))


@dataclass(frozen=True, eq=False)
class Result:
    """What the successful trials of an arm came to on one backend, None where nothing is known.

    ``step`` (all that happens between two updates included) and ``epoch`` in seconds, ``rate`` in
    samples a second, ``accuracy`` of the test set, ``share`` of the time for communication.
    """

    run: Run = field(repr=False)
    arm: str
    backend: str

    @cached_property
    def trials(self) -> list[Trial]:
        return self.run.select(self.arm, self.backend)

    steps = _seeds(ranks.step_seconds)
    accuracies = _seeds(lambda t: t.test_accuracy)
    losses = _seeds(lambda t: t.final_loss)
    step = _mean(lambda result: result.steps.values())
    accuracy = _mean(lambda result: result.accuracies.values())
    loss = _mean(lambda result: result.losses.values())
    epoch = _mean(lambda result: [epoch_seconds(result.run, t) for t in result.trials])
    rate = _mean(lambda result: [t.throughput for t in result.trials])
    updates = _mean(lambda result: [t.updates for t in result.trials])
    share = _mean(lambda result: [t.communication_share for t in result.trials])


R = TypeVar("R", bound=Result)


def results(run: Run, arms: Iterable[str]) -> list[Result]:
    """Of arms on every backend with a successful trial."""
    return [Result(run, *place) for place in ranks.ran(run, arms)]


def each(among: Iterable[R], text: Callable[[R], str]) -> str:
    """``ring torch 1.2, ring mindspore 1.3``: the values of a figure in words."""
    known = [(r, value) for r in among if (value := text(r)) != numbers.NONE]
    return ", ".join(f"{r.arm} {r.backend} {value}" for r, value in known) or numbers.NONE


# --- two of them ------------------------------------------------------------------------------

Kind = Literal["equal", "apart", "open", "few"]


@dataclass(frozen=True)
class Gap:
    """A difference of two arms' test accuracies, a fraction, paired by seed.

    ``kind``: ``equal`` within a percentage point (two one-sided tests at 5 %), ``apart`` if the
    95 % interval leaves out zero, ``open`` if neither, ``few`` seeds for any interval. ``low`` and
    ``high`` bound the 90 % interval, which the tests are equivalent to; of ``few`` seeds they are
    the extremes.
    """

    kind: Kind
    mean: float
    low: float
    high: float
    seeds: int


def gap(a: Result, b: Result) -> Gap | None:
    """Test accuracy of ``a`` minus that of ``b``; None without a common seed."""
    difference = paired(a.accuracies, b.accuracies, lambda x, y: x - y)
    if difference is None:
        return None
    if difference.seeds < ENOUGH:
        return Gap("few", difference.mean, *difference.ends, difference.seeds)
    seeds = [seed for seed in a.accuracies if seed in b.accuracies]
    test = equivalent([a.accuracies[s] for s in seeds], [b.accuracies[s] for s in seeds])
    low, high = difference.ends
    kind: Kind = "equal" if test["equivalent"] else "apart" if low > 0 or high < 0 else "open"
    return Gap(kind, difference.mean, test["low"], test["high"], len(seeds))


def in_words(gap: Gap, words: Words) -> str:
    """``−3.20 points (−4.10 … −2.30)``, or that there are too few seeds for an interval."""
    if gap.kind == "few":
        return words.plural("gap.told_few", gap.seeds, gap=gap)
    return words("gap.told", gap=gap)


def in_list(gaps: dict[str, Gap], words: Words) -> list[str]:
    """Arm by arm; without intervals where there are none at all."""
    few = all(g.kind == "few" for g in gaps.values())
    return [
        f"{arm} {words('gap.points', gap=g) if few else in_words(g, words)}"
        for arm, g in gaps.items()
    ]
