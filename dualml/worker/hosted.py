"""A process that a launcher has started for an arm: ``python -m dualml.worker.hosted SOCKET
BACKEND FOLDER …``: one of its ranks, or what only helps them find one another."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

from dualml.backend import backends
from dualml.launch.child import on_death_of_parent, serve
from dualml.launch.local_rank import without_local_rank
from dualml.worker.main import perform

#: What launchers call the number of a rank, and how many there are.
VARIABLES = (("RANK", "WORLD_SIZE"), ("HOROVOD_RANK", "HOROVOD_SIZE"))


def numbers(backend: str) -> tuple[int, int, list[str]]:
    """This rank, how many the launcher started, and the command of a process that only helps;
    a launcher that says nothing has started one."""
    there = backends()[backend].adopted()
    if there is not None:
        return there.rank, there.size, list(there.helper)
    for rank, size in VARIABLES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size]), []
    return 0, 1, []


def main(path: str, backend: str, folders: list[Path]) -> None:
    """Tell the owner who this is, and do its part."""
    rank, size, helper = numbers(backend)
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
    serve(partial(perform, folders, rank, size=size), channel)


if __name__ == "__main__":
    path, backend, *folders = without_local_rank(sys.argv[1:], os.environ)
    main(path, backend, [Path(name) for name in folders])
