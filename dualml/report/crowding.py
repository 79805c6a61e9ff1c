"""What stands beside every time: the ranks had to share cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dualml.report.blocks import Notice
from dualml.report.families import crowded
from dualml.report.machine import crowded_items
from dualml.store.run import Run
from dualml.words import Words


def crowding(run: Run, words: Words, arms: Sequence[str] | None = None) -> Iterator[Notice]:
    """A notice where ranks of any of these arms, or of any at all, took turns on cores."""
    if arms is not None and not crowded(run, arms):
        return
    items = crowded_items(run, words)
    if items:
        yield Notice(words("page.crowded", values=words.semicolons(items)))
