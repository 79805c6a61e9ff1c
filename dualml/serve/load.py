"""Show how ranks use their machines, if a monitor recorded it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dualml.report.at_work import at_work, tables
from dualml.report.blocks import Block
from dualml.words import Words


@dataclass(frozen=True)
class Load:
    """Section of a run's page about machine load, and the mapping rank → machine.

    ``blocks`` is empty if nothing was recorded; ``machines`` is for the table of ranks.
    """

    blocks: Sequence[Block] = ()
    machines: Mapping[int, str] = field(default_factory=dict)


def load_of(run: Path, words: Words) -> Load:
    """Read the recorded load of a run; cheap, because only the last lines of few files are read."""
    seen = at_work(run)
    return Load(list(tables(seen, words)), {rank.rank: rank.now.host for rank in seen})
