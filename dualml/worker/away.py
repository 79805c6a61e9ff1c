"""Transfer of files and rendezvous for a worker on a machine that does not see the run folder."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from dualml.communicator import FileBoard
from dualml.communicator.place import Board
from dualml.launch.mirror import KEEP
from dualml.launch.remote import Remote
from dualml.launch.route import ADDRESS, INTERFACE
from dualml.launch.seat import seat_of_worker
from dualml.store.trial import board_path, run_folder

#: Seconds that rank 0, which is known to be running, may take to answer.
LIMIT_S = 60.0


class RemoteBoard:
    """A `Store` whose entries are files in rank 0's run folder, reached over the network.

    Args:
        remote: the connection to rank 0's run folder.
        place: path of the store's folder, relative to the run folder.
    """

    def __init__(self, remote: Remote, place: str) -> None:
        self.remote, self.place = remote, place

    def post(self, key: str, text: str) -> None:
        self.remote.write(f"{self.place}/{key}", text.encode())

    def read(self, key: str) -> str | None:
        content = self.remote.read(f"{self.place}/{key}")
        return None if content is None else content.decode()


@functools.cache
def remote(run: Path) -> Remote | None:
    """Return this worker's connection to rank 0, or None where the run folder is on a local
    disk."""
    seat = seat_of_worker()
    return None if seat is None else Remote(seat, seat.enter(worker=True, limit=LIMIT_S), run)


def board_of(trial: Path) -> Board:
    """Return the store through which the ranks of a trial (or of a replay, which belongs to no run)
    find one another."""
    path = board_path(trial)
    if seat_of_worker() is None or (there := remote(run_folder(trial))) is None:
        return FileBoard(path)
    return RemoteBoard(there, str(path.relative_to(run_folder(trial))))


def deliver(trial: Path) -> None:
    """Upload to rank 0 what this rank has written of a trial, and return when it has arrived."""
    if (there := remote(run_folder(trial))) is not None and not os.environ.get(KEEP):
        there.deliver(trial)


def interface() -> tuple[str, str]:
    """Return the network interface through which ranks on other machines are reached, and its
    address; both are empty unless the launcher has set them."""
    return os.environ.get(INTERFACE, ""), os.environ.get(ADDRESS, "")
