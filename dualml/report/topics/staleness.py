"""Staleness: number of updates between the parameters that a gradient was computed with and its
arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData
from dualml.report import ranks
from dualml.report.blocks import Block, Item
from dualml.report.columns import table
from dualml.report.notes import Notes
from dualml.report.topics import ReportSection


def evidence(run: RunData, words: Messages) -> Iterator[Block]:
    """Yield the table of mean and largest staleness of each trial, in updates, overall and by
    rank."""
    head = (
        "`arm`",
        "backend",
        "seed:",
        "staleness:updates",
        "staleness_max:updates",
        "staleness_ranks",
    )
    rows = [
        [
            *(t.arm, t.backend, str(t.seed), t.staleness.get("mean"), t.staleness.get("max")),
            " · ".join(map(numbers.quantity, t.staleness.get("ranks") or ())),
        ]
        for arm, backend in ranks.successful_places(run, ranks.multi_rank_arms(run))
        for t in run.select(arm, backend)
        if t.staleness
    ]
    yield from table(words, "staleness", head, rows)


def findings(run: RunData, words: Messages) -> Sequence[Item]:
    """Return the mean and largest staleness of each arm; for an arm with a straggler the mean of
    the slow rank beside that of the others instead."""
    notes = Notes(words, "staleness", "table-staleness")
    for arm in ranks.multi_rank_arms(run):
        parts = []
        for _, backend in ranks.successful_places(run, [arm]):
            counted = [t.staleness for t in run.select(arm, backend) if t.staleness]
            mean = numbers.mean([c.get("mean") for c in counted])
            if handicap := ranks.straggler(run, arm):
                # With asynchronous updates the slow rank's gradients are the stalest.
                each = [(r, v) for c in counted for r, v in enumerate(c.get("ranks") or ())]
                slow = numbers.mean([v for r, v in each if r == handicap.rank])
                others = numbers.mean([v for r, v in each if r != handicap.rank])
                if slow is not None and others is not None:
                    notes.add("slow", arm=arm, backend=backend, slow=slow, others=others)
            elif mean is not None:
                most = max(int(c.get("max") or 0) for c in counted)
                parts.append(notes.format_part("item", backend=backend, mean=mean, most=most))
        notes.add_joined("mean", parts, arm=arm, others=ranks.world_size(run, arm) - 1)
    return notes


TOPIC = ReportSection("staleness", 420, evidence, findings)
