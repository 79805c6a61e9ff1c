"""Ranks that a framework's launcher starts for one arm of a run: ``torchrun`` inside of dualml.

The launcher is the one process that dualml starts; its ranks tell of themselves over a Unix socket
in a folder that nobody else can enter, one connection each, which is also their lifeline: when it
closes, they end.
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
from dualml.errors import CommunicationError
from dualml.files import open_to_append
from dualml.launch.doors import accept_each
from dualml.messages import LONGEST_LINE, decode_header, number_of, read_lines

#: The ranks of a launcher come within so many seconds, or never.
COME_S = 120.0
POLL_S = 0.05
#: Who knocked before the launcher ended is let in within so many seconds.
GREET_S = 2.0
#: Seconds until a process that knocked has said who it is, and bytes of that.
HELLO_S, LONGEST_HELLO = 30.0, 1000
MOST_RANKS = 100_000
#: A process that was killed is gone within so many seconds.
LEAVE_S = 10.0
MODULE = "dualml.worker.hosted"


class Host:
    """A launcher at work.

    Args:
        size: ranks that are asked for.
        words: of the command of `MODULE`, after the socket.
        environ: what is added to the environment.
        log: the file that everything it prints is appended to.
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
        self.asked, self.left = size, set[int]()
        self.connections = dict[int, Any]()
        self.changed = threading.Condition()
        self.begin = time.monotonic()

    def guests(self) -> list[Guest]:
        """What is known of each of its ranks; `dualml.launch.supervise` takes them for processes
        to start."""
        return [Guest(self, rank) for rank in range(self.size)]

    def start(self) -> subprocess.Popen[bytes]:
        """The launcher, started once, in a session of its own."""
        if self.process is not None:
            return self.process
        self.folder = Path(tempfile.mkdtemp(prefix="dualml-"))
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(str(self.folder / "ranks"))
        self.door.listen()
        listen = threading.Thread(target=accept_each, args=[self.door, self.greet], daemon=True)
        listen.start()
        words = [str(self.folder / "ranks"), *self.words]
        command = self.launcher.command(self.size, MODULE, words)
        with open_to_append(self.log) as output:
            self.process = subprocess.Popen(
                command,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self.process

    def greet(self, connection: socket.socket) -> None:
        """Read the first line, which says which rank it is, of how many."""
        lines = connection.makefile("rb")
        try:
            connection.settimeout(HELLO_S)
            hello = decode_header(lines.readline(LONGEST_HELLO), LONGEST_HELLO)
            size = number_of(hello, "size", 1, MOST_RANKS)
            rank = number_of(hello, "rank", -1, size - 1)  # -1: it only helps the others
            connection.settimeout(None)
        except (OSError, ValueError):
            lines.close()
            connection.close()
            return
        with self.changed:
            self.connections[rank] = (connection, lines)
            self.size = size
            self.changed.notify_all()

    def lines(self, rank: int) -> Iterator[bytes]:
        """What a rank says until it ends; of one that never comes, why; nothing of one that the
        launcher did not start."""
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
            yield from read_lines(lines, LONGEST_LINE)

    def close(self) -> None:
        """After its processes have been ended: close the door."""
        for connection, _ in self.connections.values():
            with contextlib.suppress(OSError):
                connection.close()
        if self.process is not None:
            with contextlib.suppress(OSError):
                self.door.shutdown(socket.SHUT_RDWR)
            self.door.close()
            self.process.wait(LEAVE_S)  # it has been ended
            shutil.rmtree(self.folder, ignore_errors=True)


class Guest:
    """One rank of a `Host`, as `dualml.launch.process` has processes."""

    stdin = None

    def __init__(self, host: Host, rank: int) -> None:
        self.host, self.rank, self.code = host, rank, 0
        self.pid = 0

    def start(self) -> Guest:
        self.pid = self.host.start().pid
        return self

    @property
    def stdout(self) -> Any:
        return self.said()

    def said(self) -> Iterator[bytes]:
        came = ended = False
        for line in self.host.lines(self.rank):
            came = True
            with contextlib.suppress(ValueError):
                event = decode_header(line, LONGEST_LINE + 1, finite=False)
                if event.get("event") == "result":
                    ended, self.code = True, 0 if event.get("status") == "ok" else 1
            yield line
        if not ended and (came or self.rank < self.host.size):
            self.code = 1
        self.host.left.add(self.rank)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, as far as what it said tells. Of the last one that leaves the launcher
        has time to end, too.

        Raises:
            subprocess.TimeoutExpired: it has not left, nor has the launcher ended.
        """
        gone, process = self.rank in self.host.left, self.host.process
        if process is not None and (not gone or len(self.host.left) == self.host.asked):
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                if not gone:
                    raise
        return self.code
