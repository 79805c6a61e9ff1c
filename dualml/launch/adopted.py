"""Ranks that somebody else has started: the framework's own launcher, ``torchrun`` or ``msrun``, or
the user, in one terminal for each.

There every rank is a ``dualml run`` of its own. Rank 0 does what the only process does otherwise:
it makes the run folder, records and reports. The others wait for what rank 0 announces, and run
their rank of it: in the run folder where they see it, else through `dualml.launch.mirror`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from dualml.backend import Adopted, backends
from dualml.errors import UserError, nearest, plain
from dualml.launch.process import Launch
from dualml.launch.supervise import PEERS_S, SECONDARY, Ended, supervise
from dualml.machine import python
from dualml.store.sessions import (
    SESSIONS,
    Announcement,
    Failure,
    announcement,
    failure,
    failures,
)
from dualml.store.trial import log_path

POLL_S = 0.1
#: A rank that has waited for so long for the first announcement says for what.
WORD_S = 20.0
SAME = (
    "--out must be the same folder for all ranks, on a disk that all of them see; without one, "
    "give all ranks --rendezvous tcp://HOST:PORT, with an address of rank 0's machine"
)
#: A rank may take so long to leave a group that rank 0 has left.
LEAVE_S = 5.0


def adopted() -> Adopted | None:
    """The launcher that started this process, if one of a backend's did."""
    launchers = (info.adopted() for info in backends().values())
    return next((launcher for launcher in launchers if launcher is not None), None)


def by_hand(rank: int | None, world_size: int | None, rendezvous: str | None) -> Adopted | None:
    """What the user says of this process, where each rank is started by hand.

    Raises:
        UserError: options that are missing, or do not fit one another.
    """
    if rank is None:
        return None
    if world_size is None or not (rendezvous or "").startswith("tcp://"):
        raise UserError(
            f"--rank {rank} needs --world-size N and --rendezvous tcp://HOST:PORT, with an address "
            "of rank 0's machine, the same for all ranks"
        )
    if world_size < 2 or not 0 <= rank < world_size:
        raise UserError(f"--rank {rank} of --world-size {world_size}: ranks go from 0 to size - 1")
    return Adopted("--rank", "", rank, world_size)


def check(
    launcher: Adopted,
    out: Path | None,
    world_size: int | None,
    backend: str | None,
    rendezvous: str | None = None,
) -> None:
    """Raises `UserError` for options that do not fit a framework's launcher."""
    if not launcher.backend:
        return
    who = f"started by {launcher.launcher} with {launcher.size} ranks"
    if out is None:
        raise UserError(f"{who}: name the run folder with --out, so that all ranks find it")
    if world_size not in (None, launcher.size):
        raise UserError(f"{who}: --world-size {world_size} is another number of ranks")
    if backend not in (None, launcher.backend):
        raise UserError(f"{who}: it serves --backend {launcher.backend} only; received {backend}")
    if rendezvous not in (None, "auto", "env://") and not rendezvous.startswith("tcp://"):
        raise UserError(f"{who}: its ranks have a rendezvous; leave out --rendezvous {rendezvous}")


class Sessions(Protocol):
    """How a rank other than 0 takes part in the sessions that rank 0 announces."""

    def awaited(self, number: int) -> Announcement:
        """The next announcement, when it is there."""

    def folders(self, announced: Announcement) -> list[Path]:
        """Where the trials of a session are for this rank."""

    def environ(self, announced: Announcement) -> Mapping[str, str]:
        """What its worker needs before the import of the framework."""

    def over(self, number: int) -> bool:
        """Whether rank 0 has gone on to the next session a while ago."""

    def failed(self, number: int, note: Failure) -> None:
        """Leave word of how this rank's part failed."""

    def done(self, folders: list[Path]) -> None:
        """After a session, however it ended."""


@dataclass(frozen=True)
class Shared:
    """`Sessions` in a run folder that all ranks see.

    Args:
        wait: seconds until rank 0 has announced something, at most.
    """

    rank: int
    run: Path
    start: str
    wait: float

    def awaited(self, number: int) -> Announcement:
        return awaited(self.run, number, self.wait, self.start)

    def folders(self, announced: Announcement) -> list[Path]:
        return [self.run / place for place in announced.places or ()]

    def environ(self, announced: Announcement) -> Mapping[str, str]:
        return backends()[announced.backend].environ(announced.threads)

    def over(self, number: int) -> bool:
        # Where rank 0 has gone on, who still waits for its old rank waits in vain.
        return older(self.run / announcement(number + 1).name, LEAVE_S)

    def failed(self, number: int, note: Failure) -> None:
        failure(number, self.rank).write(self.run, note)

    def done(self, folders: list[Path]) -> None:
        """They are where rank 0 finds them."""


def follow(rank: int, sessions: Sessions, limit: float) -> str:
    """What a rank other than 0 does: its part of every session that rank 0 announces. Why the run
    ended badly, by rank 0; empty where it did not.

    Args:
        limit: seconds of one trial, at most.

    Raises:
        UserError: rank 0 announced nothing in time.
    """
    number = 0
    while (announced := sessions.awaited(number)).places is not None:
        if announced.backend not in (known := backends()):
            raise UserError(
                f"rank 0 announces backend {plain(announced.backend)!r}, which this machine does "
                f"not have{nearest(announced.backend, known)}; install it here, too"
            )
        folders = sessions.folders(announced)
        words = python("-m", "dualml.worker.main", str(rank), *map(str, folders))
        launch = Launch(words, sessions.environ(announced), log_path(folders[0], rank))
        over = partial(sessions.over, number)
        ended = supervise([launch], lambda rank, event: None, limit=limit, silence=limit, over=over)
        if ended.code or ended.reason:
            note = Failure(code=ended.code, reason=ended.reason, result=ended.results.get(0))
            sessions.failed(number, note)
        sessions.done(folders)
        number += 1
    return plain(announced.why)


def fallen(run: Path, number: int) -> Ended | None:
    """What the other ranks left of a session that failed for them: one that fell by itself, else,
    some time later, one that missed another."""
    secondary = None
    for rank, path, note in failures(run, number):
        ended = Ended(note.code, note.reason, rank, {rank: note.result} if note.result else {})
        if note.reason or not missed(ended):
            return ended
        secondary = ended if older(path, PEERS_S) else secondary
    return secondary


def missed(ended: Ended) -> bool:
    """Whether the rank at fault only says that it waited in vain for another."""
    return ended.results.get(ended.rank, {}).get("kind") == SECONDARY


def at_fault(ended: Ended, run: Path, number: int) -> Ended:
    """How the ranks of a session ended, from how rank 0 did and what the others left."""
    if (ended.code or ended.reason) and not missed(ended):
        return ended
    end = time.monotonic() + (PEERS_S if ended.code else 0)
    while (other := fallen(run, number)) is None and time.monotonic() < end:
        time.sleep(POLL_S)
    return ended if other is None or (missed(other) and ended.code) else other


def older(path: Path, seconds: float) -> bool:
    """Whether a file is there, and has been for so long."""
    try:
        return time.time() - path.stat().st_mtime > seconds
    except FileNotFoundError:
        return False


def check_fresh(folder: Path) -> None:
    """Raises `UserError` for a folder with announcements older than this process's launcher."""
    import psutil

    with contextlib.suppress(psutil.Error):
        if older(folder / SESSIONS, time.time() - psutil.Process(os.getppid()).create_time()):
            raise UserError(f"{folder} is not empty; choose another --out")


def awaited(run: Path, number: int, wait: float, start: str = "") -> Announcement:
    """An announcement, when it is there; says so if that takes long.

    Args:
        start: of the launcher; what was announced in an earlier one does not count.
    """
    begin, waits = time.monotonic(), f"rank 0 announced nothing in {(run / SESSIONS).resolve()}"
    warned = number > 0  # then the folder is the right one
    while (announced := announcement(number).read_if_there(run)) is None or (
        announced.start != start
    ):
        passed = time.monotonic() - begin
        if passed > wait:
            raise UserError(f"{waits} for {wait:g} s; {SAME}")
        if passed > WORD_S and not warned:
            warned = True
            text = f"dualml: {waits} for {WORD_S:g} s, and this rank waits on; {SAME}"
            print(text, file=sys.stderr, flush=True)
        time.sleep(POLL_S)
    return announced
