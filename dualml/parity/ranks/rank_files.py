"""The files of one rank's trace: a usual trace in ``rank-00001``, and ``rank.json`` beside it.

``rank.json`` says which rank of how many wrote it, in which recording, where its arrays lie in the
whole ones, and how far it came. It is written after every step, so that others can wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from dualml.common.errors import UserError
from dualml.experiment.store.jsonfile import Count, JsonFile, Record
from dualml.parity.models.trace import Trace, array_key, read_trace
from dualml.parity.ranks.shards import RankArray, ShardPlace

#: Seconds between two looks at the files of the other ranks.
POLL_S = 0.05
#: Ranks whose state an error names.
MAX_NAMED_RANKS = 4


class RankFacts(Record):
    """The content of ``rank.json``.

    Attributes:
        recording: number that all ranks of one recording share.
        rank, ranks: number of this rank, from 0, and of all ranks.
        planned: steps to record.
        steps: completed steps.
        complete: whether nothing more will be recorded.
        places: ``PHASE/NAME`` → place of this rank's array in the whole one, without those that are
            the whole one.
    """

    recording: int
    rank: Count
    ranks: Annotated[int, Field(ge=1)]
    planned: Count
    steps: Count = 0
    complete: bool = False
    places: dict[str, ShardPlace] = Field(default_factory=dict)


FACTS = JsonFile("rank.json", RankFacts, version=1)


@dataclass(frozen=True)
class RankRecording:
    """A recording of one rank: the facts in its ``rank.json``, and its trace, which has the shapes
    of this rank's parts."""

    facts: RankFacts
    trace: Trace

    def find_part(self, phase: str, step: int, name: str) -> RankArray | None:
        """Return this rank's part of an array, with its place in the whole one; None if it has
        none."""
        array = self.trace.find_array(phase, step, name)
        place = self.facts.places.get(f"{phase}/{name}")
        return None if array is None else RankArray(self.facts.rank, array, place)


def find_parts(
    recordings: Sequence[RankRecording], phase: str, step: int, name: str
) -> list[RankArray]:
    """Return the parts of an array that the ranks have, in the order of ``recordings``; ranks
    without one are left out."""
    found = (one.find_part(phase, step, name) for one in recordings)
    return [part for part in found if part is not None]


def rank_folder(folder: Path, rank: int) -> Path:
    """Return the folder of one rank's trace inside ``folder``; rank 1 has ``rank-00001``."""
    return folder / f"rank-{rank:05d}"


def has_ranks(folder: Path) -> bool:
    """Return whether a folder has the trace of rank 0 of a recording by several ranks."""
    return (rank_folder(folder, 0) / FACTS.name).is_file()


def read_ranks(folder: Path) -> list[RankRecording]:
    """Read what all ranks recorded into a folder, and return it in the order of the ranks.

    Raises:
        UserError: a rank's trace is missing, of another recording, or has another number of steps
            although no rank raised.
    """
    first = FACTS.read(rank_folder(folder, 0))
    recordings = []
    for rank in range(first.ranks):
        place = rank_folder(folder, rank)
        if not (place / FACTS.name).is_file():
            raise UserError(
                f"{place}: there is no trace of rank {rank} of {first.ranks}; let every rank make "
                f"a Recorder with the same folder, or copy its folder here"
            )
        facts = FACTS.read(place)
        if (facts.recording, facts.ranks) != (first.recording, first.ranks):
            raise UserError(
                f"{place}: rank {rank} wrote it in another recording ({facts.ranks} ranks) than "
                f"rank 0 wrote its trace ({first.ranks} ranks); record all ranks again"
            )
        recordings.append(RankRecording(facts, read_trace(place)))
    check_steps(recordings)
    return recordings


def check_steps(recordings: Sequence[RankRecording]) -> None:
    """Raise `UserError` if the ranks have different numbers of steps, unless one of them raised."""
    steps = {one.facts.rank: one.trace.steps for one in recordings}
    if len(set(steps.values())) == 1 or any(one.trace.raised for one in recordings):
        return
    few = min(steps, key=lambda rank: steps[rank])
    most = max(steps, key=lambda rank: steps[rank])
    raise UserError(
        f"ranks with different numbers of steps: rank {few} recorded {steps[few]}, rank {most} "
        f"recorded {steps[most]}; every rank must make every step (does each get as many batches?)"
    )


def wait_for_ranks(
    folder: Path, facts: RankFacts, wait: float, clock: Callable[[], float] = time.monotonic
) -> None:
    """Wait until all other ranks have completed their part of a recording in ``folder``.

    Args:
        facts: facts of the rank that waits.
        wait: seconds to wait after the last step that any of the others has completed.
        clock: returns the time in seconds.

    Raises:
        UserError: a rank did not; the text says how far it came.
    """
    others = [rank for rank in range(facts.ranks) if rank != facts.rank]
    progress: dict[int, int] = {}
    limit = clock() + wait
    while True:
        missing = {}
        for rank in others:
            read = read_facts(folder, rank, facts.recording)
            if read is None or not read.complete:
                missing[rank] = -1 if read is None else read.steps
        if not missing:
            return
        if missing != progress:
            progress, limit = missing, clock() + wait
        if clock() >= limit:
            said = [
                f"rank {rank} of {facts.ranks} has recorded {max(steps, 0)} of {facts.planned} "
                "steps"
                for rank, steps in list(missing.items())[:MAX_NAMED_RANKS]
            ]
            more = len(missing) - len(said)
            raise UserError(
                f"{', '.join(said)}{f' and {more} more' if more else ''}, and nothing more came "
                f"within {wait:g} s: it died, makes fewer steps, or is slower; read its output, or "
                f"give it more seconds with recorder.wait = …. Its part is in "
                f"{rank_folder(folder, min(missing))}"
            )
        time.sleep(POLL_S)


def read_facts(folder: Path, rank: int, recording: int) -> RankFacts | None:
    """Return the facts of a rank of the recording with this number; None if it has written none
    yet."""
    place = rank_folder(folder, rank)
    facts = FACTS.read_if_present(place)
    return facts if facts is not None and facts.recording == recording else None


def loss_weight(trace: Trace, step: int) -> float:
    """Return the weight of a rank's loss in a step, such as its number of tokens, added up over
    micro-batches; 1 if the script gave none."""
    losses = trace.arrays.get(array_key("weight", step, "losses"))
    return 1.0 if losses is None else float(losses[:, 1].sum())
