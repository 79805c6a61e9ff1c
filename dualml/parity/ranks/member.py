"""A rank among those that record one training together, see `dualml.parity.models.recorder`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import remove_file
from dualml.parity.models.trace import HEAD, Trace
from dualml.parity.ranks.gathering import gather_folder
from dualml.parity.ranks.rank_files import FACTS, RankFacts, rank_folder, wait_for_ranks
from dualml.parity.ranks.shards import ShardPlace

#: Seconds that rank 0 waits for the next step of another rank.
WAIT_S = 60.0
#: Bits of the numbers that ranks exchange: every device reduces float32, which holds them exactly.
NUMBER_BITS = 23


@dataclass(frozen=True)
class GroupAccess:
    """A group of ranks, as a framework gives it.

    Attributes:
        rank: number of this rank in the group, from 0.
        size: number of all ranks.
        maximum: function that returns the largest of the whole numbers that all ranks call it with;
            every rank must call it.
    """

    rank: int
    size: int
    maximum: Callable[[int], int]


class RankMember:
    """A process as one of the ranks that record together. Making it waits for all ranks, and
    deletes what an earlier recording left.

    Args:
        group: the ranks, all of which make this object at the same time.
        folder: folder for the whole trace; each rank writes to a folder of its own in it.
        planned: number of steps to record.

    Attributes:
        places: ``PHASE/NAME`` → place of this rank's array in the whole one.

    Raises:
        UserError: ``folder`` is None.
    """

    def __init__(self, group: GroupAccess, folder: Path | None, planned: int) -> None:
        if folder is None:
            raise UserError("Recorder(group=…) needs a folder, which all ranks can write to")
        self.group, self.whole = group, folder
        self.folder = rank_folder(folder, group.rank)
        self.places: dict[str, ShardPlace] = {}
        FACTS.remove(self.folder)  # of an earlier recording
        if group.rank == 0:
            remove_file(folder / HEAD)
        recording = group.maximum(random.SystemRandom().getrandbits(NUMBER_BITS))
        self.facts = RankFacts(
            recording=recording, rank=group.rank, ranks=group.size, planned=planned
        )

    def agree(self, value: bool) -> bool:
        """Return whether ``value`` is true on any rank; waits for all ranks, each of which must
        call it."""
        return bool(self.group.maximum(int(value)))

    def write(self, trace: Trace, complete: bool, wait: float) -> None:
        """Write ``rank.json``, which says how far this rank came, after its trace was written. If
        the trace is complete and nothing was raised, rank 0 also waits for those of the other ranks
        and gathers them into the whole trace.

        Args:
            wait: seconds that rank 0 waits for the next step of another rank; 0: it does not gather
                the traces, because the ranks have no folder in common.

        Raises:
            UserError: ``wait`` is no number of seconds, a rank does not complete its trace, or the
                traces do not fit together.
        """
        if not 0 <= wait < float("inf"):
            raise UserError(f"wait must be a number of seconds, at least 0; received {wait}")
        self.facts = self.facts.model_copy(
            update={"places": dict(self.places), "steps": trace.steps, "complete": complete}
        )
        FACTS.write(self.folder, self.facts)
        if complete and wait and trace.raised is None and self.group.rank == 0:
            wait_for_ranks(self.whole, self.facts, wait)
            gather_folder(self.whole)
