"""What the seeds of an arm came to on one backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from dualml.report import ranks
from dualml.report.measures import epoch_seconds
from dualml.report.spread import Spread, spread
from dualml.store.run import Run, Trial
from dualml.words import numbers


@dataclass(frozen=True, eq=False)
class Result:
    """Means over the successful trials of an arm on one backend, None where nothing is known.

    ``step`` and ``epoch`` in seconds, ``rate`` in samples a second, ``accuracy`` of the test set.
    """

    run: Run = field(repr=False)
    arm: str
    backend: str

    @cached_property
    def trials(self) -> list[Trial]:
        return self.run.select(self.arm, self.backend)

    def by_seed(self, what: Callable[[Trial], float | None]) -> dict[int, float]:
        """Of the trials that know it."""
        values = {t.seed: what(t) for t in self.trials}
        return {seed: float(v) for seed, v in values.items() if numbers.known(v)}

    @cached_property
    def steps(self) -> dict[int, float]:
        """Seed → seconds of an update, all that happens between updates included."""
        return self.by_seed(ranks.step_seconds)

    @cached_property
    def accuracies(self) -> dict[int, float]:
        return self.by_seed(lambda t: t.test_accuracy)

    @cached_property
    def losses(self) -> dict[int, float]:
        return self.by_seed(lambda t: t.final_loss)

    @cached_property
    def step(self) -> Spread | None:
        return spread(self.steps.values())

    @cached_property
    def accuracy(self) -> Spread | None:
        return spread(self.accuracies.values())

    @cached_property
    def loss(self) -> Spread | None:
        return spread(self.losses.values())

    @cached_property
    def epoch(self) -> Spread | None:
        return spread(epoch_seconds(self.run, t) for t in self.trials)

    @cached_property
    def rate(self) -> Spread | None:
        return spread(t.throughput for t in self.trials)

    @cached_property
    def updates(self) -> float | None:
        return numbers.mean([t.updates for t in self.trials])

    @cached_property
    def share(self) -> float | None:
        """Of the time, for communication."""
        return ranks.share(self.run, self.arm, self.backend)


R = TypeVar("R", bound=Result)


def results(run: Run, arms: Iterable[str]) -> list[Result]:
    """Of arms on every backend with a successful trial."""
    return [Result(run, *place) for place in ranks.ran(run, arms)]


def each(among: Iterable[R], text: Callable[[R], str]) -> str:
    """``ring torch 1.2, ring mindspore 1.3``: the values of a figure in words."""
    known = [(r, value) for r in among if (value := text(r)) != numbers.NONE]
    return ", ".join(f"{r.arm} {r.backend} {value}" for r, value in known) or numbers.NONE
