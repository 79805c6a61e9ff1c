"""What several topics ask of a run and its trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from dualml.report import ranks
from dualml.store.run import Run, Trial
from dualml.words import numbers

K = TypeVar("K")


def alone(run: Run) -> bool:
    """Whether the main arms train on one rank each: what the topics of one rank are about."""
    arms = run.main_arms()
    return bool(arms) and all(ranks.size(run, arm) == 1 for arm in arms)


def loss_unit(run: Run) -> str:
    return "nat" if run.experiment.get("loss", "cross_entropy") == "cross_entropy" else "1"


def slug(group: str) -> str:
    """A group's name as a part of a file name."""
    return "".join(c if c.isalnum() else "-" for c in group.lower())


def epoch_seconds(run: Run, trial: Trial) -> float | None:
    """Training seconds per pass over the training set."""
    if not trial.train_s or not trial.sample_gradients or not run.train_size:
        return None
    return trial.train_s * run.train_size / trial.sample_gradients


def mean(
    run: Run, arm: str, backend: str | None, of: str | Callable[[Trial], float | None]
) -> float | None:
    """Mean over the successful trials of what the trial records as ``of``, or of a function."""
    trials = run.select(arm, backend)
    return numbers.mean([getattr(t, of) if isinstance(of, str) else of(t) for t in trials])


def known(values: Mapping[K, float | None]) -> dict[K, float]:
    """Those that have a value."""
    return {place: value for place, value in values.items() if value is not None}


def rising(values: Mapping[K, float], down: bool = False) -> dict[K, float]:
    """From the least to the greatest, or ``down`` from the greatest."""
    return dict(sorted(values.items(), key=lambda item: item[1], reverse=down))
