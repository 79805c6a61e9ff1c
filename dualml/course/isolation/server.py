"""The server from which checks are forked: ``python -m dualml.course.isolation.server FD BACKEND
KIND DRIVE …``.

The server imports a framework once, and nothing that an exercise asks for, disables the framework's
own solutions, and forks a warden for every request on the Unix socket FD. KIND is the kind of
isolation; a server of ``bubblewrap`` is already isolated. A request is a JSON object with ``walls``
and ``network``, and the descriptors of a connection to the judge and of one output file per rank.
The answer has the warden's process number.

The server is started with few variables and without the secret, so that no forked process has it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import re
import select
import signal
import socket
import sys
from pathlib import Path

from dualml.course.forbidden import READY_MADE
from dualml.course.guards import disable_ready_made
from dualml.course.isolation.root import Contents, find_contents
from dualml.course.isolation.walls import NOBODY, Walls
from dualml.course.isolation.warden import run_warden
from dualml.launch.child import on_death_of_parent

#: Maximum bytes of a request, and maximum number of descriptors sent with it.
MAX_REQUEST_BYTES, MAX_DESCRIPTORS = 4096, 66
#: Modules that contain, or lie beside, solutions of exercises.
SOLUTION = re.compile(
    r"dualml\.(optim|precision|model|backend|reference|aggregation|partition|split|zero|parity)\b"
    r"|dualml\.course\.(lab\d|memory|methods|checkpoint|rnn_ps|accumulation|loader)\b"
    r"|dualml\.course\.(bottleneck|solutions|judge|catalogue|grading|workspace)\b"
    r"|dualml_(torch|ms)\.(?!course)"
)
#: Time limit in seconds for assembling a warden's root.
ROOT_S = 10.0


def main() -> None:
    """Start the server as its command-line arguments say."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    backend, kind, drive, *modules = sys.argv[2:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner decides
    for module in (drive, *modules):
        importlib.import_module(module)
    if found := [name for name in sys.modules if SOLUTION.match(name)]:
        raise SystemExit(f"modules that no student may find: {', '.join(found)}")
    disable_ready_made(READY_MADE.get(backend, ()))
    with contextlib.suppress(AttributeError):
        sys.modules[drive].seal()
    shown_files = find_contents()
    gc.collect()
    gc.freeze()  # nothing of it becomes garbage: no child needs to go through it
    channel.send(json.dumps({"ready": True}).encode())
    serve(channel, shown_files, in_bubblewrap=kind == "bubblewrap")


def serve(channel: socket.socket, shown_files: Contents, in_bubblewrap: bool) -> None:
    """Fork a warden for every request and answer with its process number, until the owner closes
    the connection or ends."""
    owner = os.getppid()
    while os.getppid() == owner:  # a channel of datagrams does not tell that its end is closed
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not select.select([channel], [], [], 1.0)[0]:
            continue
        message, descriptors, *_ = socket.recv_fds(channel, MAX_REQUEST_BYTES, MAX_DESCRIPTORS)
        if not message:
            return
        request = json.loads(message)
        walls = shown_files if request["walls"] else None
        (read_asked, write_asked), (read_done, write_done) = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            for end in (channel.fileno(), read_asked, write_done):
                os.close(end)
            os.setsid()
            on_death_of_parent(signal.SIGKILL)
            control = socket.socket(fileno=descriptors[0])
            pipe = (read_done, write_asked)
            around = Walls(walls, bool(request["network"]), in_bubblewrap, pipe)
            run_warden(control, descriptors[1:], around)
        for end in (*descriptors, write_asked, read_done):
            os.close(end)
        if walls is not None and not in_bubblewrap and os.geteuid() == 0:
            map_users(pid, read_asked, write_done)
        os.close(read_asked)
        os.close(write_done)
        with contextlib.suppress(OSError):
            channel.send(json.dumps({"pid": pid}).encode())


def map_users(pid: int, asked: int, done: int) -> None:
    """Map the users of a warden's new namespace, which only root outside of it may do, once it
    asks.

    Args:
        pid: process number of the warden.
        asked: pipe in which a byte asks for it, within `ROOT_S` seconds.
        done: pipe into which a byte is written afterwards, unless it failed.
    """
    if select.select([asked], [], [], ROOT_S)[0] and os.read(asked, 1):
        with contextlib.suppress(OSError):
            for kind in ("uid", "gid"):
                Path(f"/proc/{pid}/{kind}_map").write_text(f"{NOBODY} {NOBODY} 1", "ascii")
            os.write(done, b"m")


if __name__ == "__main__":
    main()
