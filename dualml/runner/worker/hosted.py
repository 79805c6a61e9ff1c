"""A worker process started by an external launcher for one arm: ``python -m
dualml.runner.worker.hosted SOCKET BACKEND FOLDER …``.

It is either one of the ranks, or a helper process through which the ranks find one another.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from dualml.backend import backends
from dualml.launch.child import on_death_of_parent
from dualml.launch.local_rank import without_local_rank
from dualml.runner.worker.main import main as run_rank

#: Variables in which launchers pass the rank and the number of ranks.
VARIABLES = (("RANK", "WORLD_SIZE"), ("HOROVOD_RANK", "HOROVOD_SIZE"))


def launched_rank_and_size(backend: str) -> tuple[int, int, list[str]]:
    """Return this process's rank (−1 for a helper process), the number of ranks the launcher
    started, and the command of the helper (empty for a rank). A launcher that sets no variables
    counts as one rank."""
    there = backends()[backend].adopted()
    if there is not None:
        return there.rank, there.size, list(there.helper)
    for rank, size in VARIABLES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size]), []
    return 0, 1, []


def main(path: str, backend: str, folders: list[Path]) -> None:
    """Report this rank to the process that owns the ranks, which listens at the Unix socket
    ``path``, and run its part of the trials, or the launcher's helper; then exit the process."""
    rank, size, helper = launched_rank_and_size(backend)
    owner = socket.socket(socket.AF_UNIX)
    owner.connect(path)
    channel = os.fdopen(os.dup(owner.fileno()), "w", buffering=1)  # its own would keep lines back
    channel.write(json.dumps({"rank": rank, "size": size}) + "\n")
    on_death_of_parent(signal.SIGKILL)
    if rank < 0:
        child = subprocess.Popen(helper, stdin=subprocess.PIPE)
        owner.recv(1)  # until the owner has heard the last of the ranks
        child.kill()
        os._exit(0)

    def wait() -> None:
        while owner.recv(1024):
            pass
        os._exit(70)

    threading.Thread(target=wait, daemon=True).start()
    os.dup2(2, 1)
    run_rank(rank, folders, size, channel)


if __name__ == "__main__":
    path, backend, *folders = without_local_rank(sys.argv[1:], os.environ)
    main(path, backend, [Path(name) for name in folders])
