"""Staleness: number of updates between the parameters that a gradient was computed with and its
arrival."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dualml.common.words import Messages, numbers
from dualml.experiment.store.run import RunData, Trial
from dualml.report import ranks
from dualml.report.columns import Columns
from dualml.report.notes import Notes
from dualml.report.topics import table_section

Stale = tuple[Trial, Mapping[str, Any]]


def stale_trials(run: RunData) -> list[Stale]:
    """Return (trial, staleness) for each successful trial of an unsplit multi-rank arm that
    recorded the staleness of its gradients, in updates: ``mean``, ``max`` and ``ranks``, the mean
    of each rank."""
    places = ranks.successful_places(run, ranks.multi_rank_arms(run))
    trials = (t for place in places for t in run.select(*place))
    return [(t, t.staleness) for t in trials if t.staleness]


def columns(run: RunData, words: Messages, records: Sequence[Stale]) -> Columns[Stale]:
    """Return the columns of mean and largest staleness, overall and by rank."""
    return {
        ("`arm`", "backend", "seed:"): lambda r: (r[0].arm, r[0].backend, str(r[0].seed)),
        "staleness:updates": lambda r: r[1].get("mean"),
        "staleness_max:updates": lambda r: r[1].get("max"),
        "staleness_ranks": lambda r: " · ".join(map(numbers.quantity, r[1].get("ranks") or ())),
    }


def findings(notes: Notes, run: RunData, records: Sequence[Stale]) -> None:
    """Add the mean and largest staleness of each arm; for an arm with a straggler the mean of the
    slow rank beside that of the others instead."""
    for arm in ranks.multi_rank_arms(run):
        parts = []
        for _, backend in ranks.successful_places(run, [arm]):
            counted = [c for t, c in records if (t.arm, t.backend) == (arm, backend)]
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


TOPIC = table_section("staleness", 420, reads=stale_trials, columns=columns, findings=findings)
