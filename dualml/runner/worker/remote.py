"""Transfer of files and rendezvous for a worker on a machine that does not see the run folder."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from dualml.algorithms.communicator import FileStore
from dualml.algorithms.communicator.rendezvous import Store
from dualml.experiment.store.trial import rendezvous_path, run_folder_of
from dualml.launch.credentials import worker_credentials
from dualml.launch.remote import RemoteRunFolder
from dualml.launch.remote_client import KEEP_LOCAL_VARIABLE
from dualml.launch.route import ADDRESS, INTERFACE

#: Seconds that rank 0, which is known to be running, may take to answer.
LIMIT_S = 60.0


class RemoteStore:
    """A `Store` whose entries are files in rank 0's run folder, reached over the network.

    Args:
        remote: the connection to rank 0's run folder.
        place: path of the store's folder, relative to the run folder.
    """

    def __init__(self, remote: RemoteRunFolder, place: str) -> None:
        self.remote, self.place = remote, place

    def set(self, key: str, text: str) -> None:
        """Write ``text`` to the file ``key`` of the store in rank 0's run folder."""
        self.remote.write(f"{self.place}/{key}", text.encode())

    def get(self, key: str) -> str | None:
        """Return the content of the file ``key`` of the store, or None if it does not exist."""
        content = self.remote.read(f"{self.place}/{key}")
        return None if content is None else content.decode()


@functools.cache
def connect_to_rank0(run: Path) -> RemoteRunFolder | None:
    """Return this worker's connection to rank 0, made on the first call; None for a worker that
    sees the run folder itself. ``run`` is this machine's copy of the folder."""
    seat = worker_credentials()
    if seat is None:
        return None
    return RemoteRunFolder(seat, seat.connect(worker=True, limit=LIMIT_S), run)


def store_for(trial: Path) -> Store:
    """Return the key-value store through which the ranks of a trial (or of a replay, which belongs
    to no run) find one another: files in the folder, or on rank 0's machine where this worker does
    not see the run folder."""
    path = rendezvous_path(trial)
    if worker_credentials() is None or (there := connect_to_rank0(run_folder_of(trial))) is None:
        return FileStore(path)
    return RemoteStore(there, str(path.relative_to(run_folder_of(trial))))


def upload_outputs(trial: Path) -> None:
    """Upload to rank 0 what this rank has written of a trial, and return when it has arrived; do
    nothing where the rank sees the run folder, or with ``--keep-local``."""
    if (there := connect_to_rank0(run_folder_of(trial))) is not None and not os.environ.get(
        KEEP_LOCAL_VARIABLE
    ):
        there.upload(trial)


def network_interface() -> tuple[str, str]:
    """Return the network interface through which ranks on other machines are reached, and its
    address; both are empty unless the launcher has set them."""
    return os.environ.get(INTERFACE, ""), os.environ.get(ADDRESS, "")
