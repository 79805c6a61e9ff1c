"""What ranks use of their machines, where something watched them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dualml.report.at_work import at_work, tables
from dualml.report.blocks import Block
from dualml.words import Words


@dataclass(frozen=True)
class Load:
    """The chapter of a run's page: what it shows, nothing leaves it out; and rank → the machine it
    is on, for the table of ranks."""

    blocks: Sequence[Block] = ()
    machines: Mapping[int, str] = field(default_factory=dict)


def load_of(run: Path, words: Words) -> Load:
    """Of a run folder; asked at every look at the page: the last lines of few files are read."""
    seen = at_work(run)
    return Load(list(tables(seen, words)), {rank.rank: rank.now.host for rank in seen})
