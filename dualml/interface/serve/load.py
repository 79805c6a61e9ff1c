"""Show how ranks use their machines, if a monitor recorded it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dualml.common.words import Messages
from dualml.report.blocks import Block
from dualml.report.live_usage import active_ranks, tables


@dataclass(frozen=True)
class LoadSection:
    """Section of a run's page about machine load, and the mapping rank → machine.

    ``blocks`` is empty if no running rank has a record; ``machines`` has the running ranks only,
    for the table of ranks.
    """

    blocks: Sequence[Block] = ()
    machines: Mapping[int, str] = field(default_factory=dict)


def read_load(run: Path, words: Messages) -> LoadSection:
    """Read the last recorded load of each running rank of a run; cheap, because only the last lines
    of few files are read."""
    seen = active_ranks(run)
    return LoadSection(list(tables(seen, words)), {rank.rank: rank.now.host for rank in seen})
