"""Breakdown of a trial's seconds, besides training."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.manifest import TIMED_ACTIVITIES
from dualml.experiment.store.run import RunData, Trial
from dualml.report.columns import Columns, number
from dualml.report.notes import Notes
from dualml.report.topics import table_section

Trials = Sequence[Trial]


def timed_trials(run: RunData) -> list[Trials]:
    """Return the successful trials with seconds by purpose, a list per arm and backend."""
    places = ([t for t in run.select(a, b) if t.spent] for a in run.arms for b in run.backends)
    return [trials for trials in places if trials]


def columns(run: RunData, words: Messages, records: Sequence[Trials]) -> Columns[Trials]:
    """Return the columns of seconds by purpose and in all, means over the seeds."""
    purposes = [
        number(words, what, words(f"spent.{what}"), "seconds")
        for what in (*TIMED_ACTIVITIES, "all")
    ]
    return {
        ("`arm`", "backend"): lambda trials: (trials[0].arm, trials[0].backend),
        tuple(purposes): lambda trials: [
            *(numbers.mean([t.spent.get(what) for t in trials]) for what in TIMED_ACTIVITIES),
            numbers.mean([t.wall_s for t in trials]),
        ],
    }


def findings(notes: Notes, run: RunData, records: Sequence[Trials]) -> None:
    """Add the share of each backend's time that was training, and the largest other purpose."""
    for backend in run.backends:
        known = [t.spent for t in run.trials if t.backend == backend and t.spent]
        sums = {what: sum(spent.get(what) or 0.0 for spent in known) for what in TIMED_ACTIVITIES}
        whole, train = sum(sums.values()), sums.pop("train")
        if whole:
            most = max(sums, key=lambda what: sums[what])
            shares = {"train": train / whole, "share": sums[most] / whole}
            notes.add("share", backend=backend, most=notes.words(f"spent.{most}"), **shares)


TOPIC = table_section("spent", 900, reads=timed_trials, columns=columns, findings=findings)
