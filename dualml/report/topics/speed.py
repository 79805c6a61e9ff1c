"""Training time of the frameworks compared, on the same machine only."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, Trial
from dualml.report import ranks
from dualml.report.columns import Columns, number
from dualml.report.measures import drop_missing, mean_over_trials, trains_on_one_rank
from dualml.report.notes import Notes
from dualml.report.topics import table_section


def time_ratio(run: RunData, arm: str, a: str, b: str) -> float | None:
    """Return the training time of an arm on backend ``b`` relative to backend ``a``, median over
    the seeds; None if unknown."""
    seconds = {t.seed: t.train_s for t in run.select(arm, a)}
    pairs = [(seconds.get(t.seed), t.train_s) for t in run.select(arm, b)]
    ratios = [y / x for x, y in pairs if x and y]
    return median(ratios) if ratios else None


def timed_arms(run: RunData) -> list[str]:
    """Return the main arms; none if fewer than two backends are timed (`ranks.timed_backends`)."""
    return run.main_arms() if len(ranks.timed_backends(run)) > 1 else []


def columns(run: RunData, words: Messages, compared: Sequence[str]) -> Columns[str]:
    """Return a column per backend of the seconds of training, means over the seeds."""
    shown = ranks.timed_backends(run)
    return {
        "`arm`": lambda arm: arm,
        tuple(number(words, b, b, "seconds") for b in shown): lambda arm: [
            mean_over_trials(run, arm, b, "train_s") for b in shown
        ],
    }


def findings(notes: Notes, run: RunData, compared: Sequence[str]) -> None:
    """Add how many times as long each backend takes as another, by arm, and the seconds spent
    outside training."""
    arms = [arm for arm in run.main_arms() if run.select(arm)]
    shown = ranks.timed_backends(run)
    if len(shown) < 2:
        if not ranks.is_distributed(run):
            notes.add_warning("single")
        return
    for a, b in combinations(shown, 2):
        ratios = drop_missing({arm: time_ratio(run, arm, a, b) for arm in arms})
        if not ratios:
            notes.add_warning("no_pair", a=a, b=b)
            continue
        fast, slow = (a, b) if median(ratios.values()) >= 1 else (b, a)
        times = {arm: r if fast == a else 1 / r for arm, r in ratios.items()}
        listed = [notes.format_part("item", arm=arm, times=r) for arm, r in times.items()]
        notes.add("ratio", slow=slow, fast=fast, values=listed)
    for backend in shown:
        seconds = numbers.mean(
            [_seconds_outside_training(t) for arm in arms for t in run.select(arm, backend)]
        )
        if seconds is not None:
            notes.add("outside", backend=backend, seconds=seconds)
    if len(run.folders) > 1:
        notes.add_warning("machines", n=len(run.folders))


def _seconds_outside_training(t: Trial) -> float | None:
    """Return the seconds of a trial that were not training, None if unknown."""
    return None if t.wall_s is None or t.train_s is None else t.wall_s - t.train_s


TOPIC = table_section(
    "speed",
    130,
    reads=timed_arms,
    columns=columns,
    findings=findings,
    priority=lambda run: 40,
    when=trains_on_one_rank,
)
