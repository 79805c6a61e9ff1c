"""Breakdown of a trial's seconds, besides training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.manifest import TIMED_ACTIVITIES
from dualml.experiment.store.run import RunData
from dualml.report.blocks import Block, Item
from dualml.report.columns import number, table
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the table of seconds by purpose, for each arm and backend, mean over the seeds."""
    rows = []
    for arm in run.arms:
        for backend in run.backends:
            known = [t for t in run.select(arm, backend) if t.spent]
            if known:
                means = [
                    numbers.mean([t.spent.get(what) for t in known]) for what in TIMED_ACTIVITIES
                ]
                rows.append([arm, backend, *means, numbers.mean([t.wall_s for t in known])])
    head = (
        number(words, what, words(f"spent.{what}"), "seconds")
        for what in (*TIMED_ACTIVITIES, "all")
    )
    if rows:
        yield from table(words, "spent", ["`arm`", "backend", *head], rows)


def findings(run: RunData, words: Messages) -> Sequence[Item]:
    """Return the share of each backend's time that was training, and the largest other purpose."""
    notes = Notes(words, "spent", "table-spent")
    for backend in run.backends:
        known = [t.spent for t in run.trials if t.backend == backend and t.spent]
        sums = {what: sum(spent.get(what) or 0.0 for spent in known) for what in TIMED_ACTIVITIES}
        whole, train = sum(sums.values()), sums.pop("train")
        if whole:
            most = max(sums, key=lambda what: sums[what])
            notes.add(
                "share",
                backend=backend,
                train=train / whole,
                most=words(f"spent.{most}"),
                share=sums[most] / whole,
            )
    return notes


TOPIC = ReportSection("spent", 900, evidence, findings)
