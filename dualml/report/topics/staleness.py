"""Staleness: how many updates lie between the parameters of a gradient and its arrival."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dualml.report import ranks
from dualml.report.blocks import Block, Item
from dualml.report.columns import Line as Row
from dualml.report.columns import table
from dualml.report.notes import Notes
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers


def evidence(run: Run, words: Words) -> Iterator[Block]:
    rows: list[Row] = [
        [
            *(arm, backend, str(t.seed)),
            *(numbers.quantity(t.staleness.get(key)) for key in ("mean", "max")),
            " · ".join(numbers.quantity(v) for v in t.staleness.get("ranks") or ()),
        ]
        for arm, backend in ranks.ran(run, ranks.several(run))
        for t in run.select(arm, backend)
        if t.staleness
    ]
    head = ("`arm`", "backend", "seed:", "staleness:updates", "staleness_max:updates",
            "staleness_ranks")  # fmt: skip
    yield from table(words, "staleness", head, rows)


def findings(run: Run, words: Words) -> Sequence[Item]:
    notes = Notes(words, "staleness", "table-staleness")
    for arm in ranks.several(run):
        known = {
            backend: counted
            for backend in run.backends
            if (counted := [t.staleness for t in run.select(arm, backend) if t.staleness])
        }
        if ranks.slow(run, arm):
            for backend, counted in known.items():
                _slow(notes, run, arm, backend, counted)
        else:
            _mean(notes, run, words, arm, known)
    return notes


Counted = Sequence[Mapping[str, Any]]


def _mean(notes: Notes, run: Run, words: Words, arm: str, known: Mapping[str, Counted]) -> None:
    items = [
        words("say.staleness.item", backend=backend, mean=numbers.quantity(mean),
              most=max(int(c.get("max") or 0) for c in counted))
        for backend, counted in known.items()
        if (mean := numbers.mean([c.get("mean") for c in counted])) is not None
    ]  # fmt: skip
    if items:
        n = ranks.size(run, arm)
        notes.say("mean", arm=arm, others=n - 1, values=words.semicolons(items))


def _slow(notes: Notes, run: Run, arm: str, backend: str, counted: Counted) -> None:
    """Served asynchronously, the slow rank's gradients are the oldest."""
    handicap = ranks.slow(run, arm)
    assert handicap is not None
    pairs = [(r == handicap.rank, v) for c in counted for r, v in enumerate(c.get("ranks") or ())]
    slow, others = (
        numbers.mean([v for is_slow, v in pairs if is_slow == x]) for x in (True, False)
    )
    if slow is not None and others is not None:
        notes.say("slow", arm=arm, backend=backend, slow=numbers.quantity(slow),
                  others=numbers.quantity(others))  # fmt: skip


TOPIC = Topic("staleness", 420, evidence, findings)
