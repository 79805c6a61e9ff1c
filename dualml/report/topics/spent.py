"""Breakdown of a trial's seconds, besides training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report.blocks import Block, Item
from dualml.report.columns import number, table
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.manifest import SPENT
from dualml.store.run import Run
from dualml.words import Words, numbers


def evidence(run: Run, words: Words) -> Iterator[Block]:
    """Yield the seconds by purpose, for each arm and backend, mean over the seeds."""
    rows = []
    for arm in run.arms:
        for backend in run.backends:
            known = [t for t in run.select(arm, backend) if t.spent]
            if known:
                means = [numbers.mean([t.spent.get(what) for t in known]) for what in SPENT]
                rows.append([arm, backend, *means, numbers.mean([t.wall_s for t in known])])
    head = (number(words, what, words(f"spent.{what}"), "seconds") for what in (*SPENT, "all"))
    if rows:
        yield from table(words, "spent", ["`arm`", "backend", *head], rows)


def findings(run: Run, words: Words) -> Sequence[Item]:
    """Return the share of each backend's time that was training, and the largest other purpose."""
    notes = Notes(words, "spent", "table-spent")
    for backend in run.backends:
        known = [t.spent for t in run.trials if t.backend == backend and t.spent]
        sums = {what: sum(spent.get(what) or 0.0 for spent in known) for what in SPENT}
        whole, train = sum(sums.values()), sums.pop("train")
        if whole:
            most = max(sums, key=lambda what: sums[what])
            notes.say("share", backend=backend, train=train / whole,
                      most=words(f"spent.{most}"), share=sums[most] / whole)  # fmt: skip
    return notes


TOPIC = Topic("spent", 900, evidence, findings)
