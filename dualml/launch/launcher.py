"""Ranks that a framework's launcher starts for one arm of a run: ``torchrun`` inside dualml.

The launcher is the only process that dualml starts. Its ranks connect through a Unix socket in a
folder that no other user can enter, one connection each. The connection is also their lifeline:
when it closes, they end.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dualml.backend import Launcher
from dualml.common.bounded_io import MAX_LINE_BYTES, decode_header, get_int, read_lines
from dualml.common.errors import CommunicationError
from dualml.common.files import open_to_append
from dualml.launch.listener import accept_connections
from dualml.launch.process import start_session

#: Seconds within which the ranks of a launcher must connect.
COME_S = 120.0
POLL_S = 0.05
#: Seconds to accept connections made before the launcher ended.
GREET_S = 2.0
#: Seconds until a new connection must identify itself, and the bytes it may send for that.
HELLO_S, MAX_HELLO_BYTES = 30.0, 1000
MAX_RANKS = 100_000
#: Seconds within which a killed process must be gone.
LEAVE_S = 10.0
MODULE = "dualml.runner.worker.hosted"


class LauncherProcess:
    """A running launcher and the connections of its ranks.

    Args:
        launcher: description of the launcher.
        size: number of ranks that are requested.
        words: arguments of `MODULE`, after the socket.
        environ: variables added to the environment.
        log: file to which everything it prints is appended.
    """

    def __init__(
        self,
        launcher: Launcher,
        size: int,
        words: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
    ) -> None:
        self.launcher, self.size, self.words, self.log = launcher, size, words, log
        self.environ = {**os.environ, **environ, **launcher.environ}
        self.process: subprocess.Popen[bytes] | None = None
        self.requested_size, self.departed = size, set[int]()
        self.connections = dict[int, Any]()
        self.changed = threading.Condition()
        self.begin = time.monotonic()

    def make_ranks(self) -> list[LaunchedRank]:
        """Return one object per rank, which `dualml.launch.supervise` treats as a process to
        start."""
        return [LaunchedRank(self, rank) for rank in range(self.size)]

    def start(self) -> subprocess.Popen[bytes]:
        """Start the launcher in a session of its own on the first call; return its process, also
        on later calls."""
        if self.process is not None:
            return self.process
        self.folder = Path(tempfile.mkdtemp(prefix="dualml-"))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.folder / "ranks"))
        self.listener.listen()
        listen = threading.Thread(
            target=accept_connections, args=[self.listener, self.accept_rank], daemon=True
        )
        listen.start()
        words = [str(self.folder / "ranks"), *self.words]
        command = self.launcher.command(self.size, MODULE, words)
        with open_to_append(self.log) as output:
            self.process = start_session(command, output, env=self.environ)
        return self.process

    def accept_rank(self, connection: socket.socket) -> None:
        """Read the first line of a connection, which has the rank and the number of ranks; register
        the connection under the rank (−1: a helper process), and set ``size``. Close a connection
        that sends anything else."""
        lines = connection.makefile("rb")
        try:
            connection.settimeout(HELLO_S)
            hello = decode_header(lines.readline(MAX_HELLO_BYTES), MAX_HELLO_BYTES)
            size = get_int(hello, "size", 1, MAX_RANKS)
            rank = get_int(hello, "rank", -1, size - 1)  # -1: a helper process
            connection.settimeout(None)
        except (OSError, ValueError):
            lines.close()
            connection.close()
            return
        with self.changed:
            self.connections[rank] = (connection, lines)
            self.size = size
            self.changed.notify_all()

    def rank_lines(self, rank: int) -> Iterator[bytes]:
        """Yield the lines of a rank until it ends; a failure result for one that never connects,
        and nothing for one that the launcher did not start."""
        assert self.process is not None
        gone = math.inf
        with self.changed:
            while rank not in self.connections:
                code, now = self.process.poll(), time.monotonic()
                gone = min(gone, math.inf if code is None else now + GREET_S)
                if rank >= self.size:
                    return
                if now > gone or now - self.begin > COME_S:
                    late = f"this rank did not come within {COME_S:g} s"
                    over = f"the launcher ended with exit code {code} before this rank came"
                    reason = late if code is None else over
                    result = {"event": "result", "status": "failed", "reason": reason}
                    # At fault only if no other rank has a reason of its own.
                    yield json.dumps({**result, "kind": CommunicationError.__name__}).encode()
                    return
                self.changed.wait(POLL_S)
            _, lines = self.connections[rank]
        with contextlib.suppress(OSError):
            yield from read_lines(lines, MAX_LINE_BYTES)

    def close(self) -> None:
        """Close the ranks' connections and the socket, wait up to `LEAVE_S` for the launcher's
        process, which the caller has ended, and remove the socket's folder."""
        for connection, _ in self.connections.values():
            with contextlib.suppress(OSError):
                connection.close()
        if self.process is not None:
            with contextlib.suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.process.wait(LEAVE_S)  # it has been ended
            shutil.rmtree(self.folder, ignore_errors=True)


class LaunchedRank:
    """One rank of a `LauncherProcess`, which is started as a `Launch` is, and is then a process
    like those of `dualml.launch.process` itself; ``pid`` is the launcher's."""

    stdin = None

    def __init__(self, host: LauncherProcess, rank: int) -> None:
        self.launcher, self.rank, self.code = host, rank, 0
        self.pid = 0

    def start(self) -> LaunchedRank:
        """Start the launcher, if it is not running, and return this rank."""
        self.pid = self.launcher.start().pid
        return self

    @property
    def stdout(self) -> Any:
        """Iterator over the lines of this rank."""
        return self.iter_lines()

    def iter_lines(self) -> Iterator[bytes]:
        """Yield the lines of this rank, and note its exit code: 0 if its result is ``ok``, or if
        the launcher did not start it, else 1."""
        came = ended = False
        for line in self.launcher.rank_lines(self.rank):
            came = True
            with contextlib.suppress(ValueError):
                event = decode_header(line, MAX_LINE_BYTES + 1, finite=False)
                if event.get("event") == "result":
                    ended, self.code = True, 0 if event.get("status") == "ok" else 1
            yield line
        if not ended and (came or self.rank < self.launcher.size):
            self.code = 1
        self.launcher.departed.add(self.rank)

    def wait(self, timeout: float | None = None) -> int:
        """Return the rank's exit code, as far as its output tells it; for the last rank that ends,
        wait for the launcher, too.

        Raises:
            subprocess.TimeoutExpired: neither the rank nor the launcher has ended after ``timeout``
                seconds.
        """
        gone, process = self.rank in self.launcher.departed, self.launcher.process
        if process is not None and (
            not gone or len(self.launcher.departed) == self.launcher.requested_size
        ):
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                if not gone:
                    raise
        return self.code
