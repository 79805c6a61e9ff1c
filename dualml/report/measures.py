"""Quantities of runs and trials that several topics use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from dualml.common.words import numbers
from dualml.experiment.store.run import RunData, Trial
from dualml.report import ranks

K = TypeVar("K")


def trains_on_one_rank(run: RunData) -> bool:
    """Return whether all main arms train on one rank, as the single-rank topics require; False
    without main arms."""
    arms = run.main_arms()
    return bool(arms) and all(ranks.world_size(run, arm) == 1 for arm in arms)


def loss_unit(run: RunData) -> str:
    """Return the unit of the loss: ``nat`` for cross-entropy, else ``1``."""
    return "nat" if run.experiment.get("loss", "cross_entropy") == "cross_entropy" else "1"


def slug(group: str) -> str:
    """Return a group's name in lower case with hyphens for other characters, as part of a file
    name."""
    return "".join(c if c.isalnum() else "-" for c in group.lower())


def epoch_seconds(run: RunData, trial: Trial) -> float | None:
    """Return the training seconds per pass over the training set, None if unknown."""
    if not trial.train_s or not trial.sample_gradients or not run.train_size:
        return None
    return trial.train_s * run.train_size / trial.sample_gradients


def mean_over_trials(
    run: RunData, arm: str, backend: str | None, quantity: str | Callable[[Trial], float | None]
) -> float | None:
    """Return the mean over the successful trials of a field of the trial, or of a function of it;
    None without a value. ``backend`` None takes all backends."""
    trials = run.select(arm, backend)
    return numbers.mean(
        [getattr(t, quantity) if isinstance(quantity, str) else quantity(t) for t in trials]
    )


def drop_missing(values: Mapping[K, float | None]) -> dict[K, float]:
    """Return the mapping without the keys whose value is None."""
    return {place: value for place, value in values.items() if value is not None}


def sort_by_value(values: Mapping[K, float], descending: bool = False) -> dict[K, float]:
    """Return the mapping sorted by value, ascending or (``descending``) descending."""
    return dict(sorted(values.items(), key=lambda item: item[1], reverse=descending))
