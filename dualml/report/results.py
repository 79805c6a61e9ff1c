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
