"""Processes to start: by themselves, or forked from one that has imported the framework already."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.files import open_to_append
from dualml.machine import python

#: The import of a framework on a busy machine, at most.
IMPORT_S = 120.0
#: Servers kept at a time, one for each environment that workers need.
KEPT = 4
#: Set to 0, every worker is a process that imports its framework itself.
SWITCH = "DUALML_FORK"
#: Changes from test to test and is read by no import.
VOLATILE = "PYTEST_CURRENT_TEST"


@dataclass(frozen=True)
class Launch:
    """One process to start.

    Attributes:
        command: what it runs.
        environ: what is added to the environment.
        log: the file that its standard error is appended to.
        preload: modules that it may find imported, where its command is ``python -m …``; it is
            forked from a process that has imported them, where the system can do so safely.
        cores: it will confine itself to so many (`dualml.machine.pin`); 0: it will not.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    log: Path
    preload: Sequence[str] = ()
    cores: int = 0

    def start(self) -> Process:
        """The process, in a session of its own, with pipes to its input and output."""
        environ = {**os.environ, **self.environ}
        with open_to_append(self.log) as output:
            if self.preload and forks(environ):
                with contextlib.suppress(
                    OSError
                ):  # it did not start: then neither will this, but say why
                    return forked(self, environ, output.fileno())
            return subprocess.Popen(
                self.command,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )


def forks(environ: Mapping[str, str]) -> bool:
    """Whether workers are forked: on Linux only, where it is tested."""
    return sys.platform == "linux" and environ.get(SWITCH) != "0"


class Forked:
    """A process that a `Server` has forked: what `subprocess.Popen` would be."""

    def __init__(self, server: Server, pid: int, stdin: Any, stdout: Any) -> None:
        self.server, self.pid, self.stdin, self.stdout = server, pid, stdin, stdout

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: it is still at work.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.server.code(self.pid, deadline)) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout or 0.0)
        return code


Process = subprocess.Popen[bytes] | Forked


class Server:
    """The owner's end of one `dualml.launch.forkserver`."""

    def __init__(self, environ: Mapping[str, str], cores: int, preload: Sequence[str]) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lock, self.codes = threading.Lock(), dict[int, int]()
        self.living = set[int]()
        with theirs:
            module = python("-m", "dualml.launch.forkserver")
            self.process = subprocess.Popen(
                [*module, str(theirs.fileno()), str(cores), *preload],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def fork(self, words: Sequence[str], log: int) -> Forked:
        """A new process that runs ``python -m WORDS``.

        Raises:
            OSError: the server has ended, or does not answer.
        """
        (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
        try:
            with self.lock:
                request = json.dumps(list(words)).encode()
                socket.send_fds(self.channel, [request], [read_in, write_out, log])
                pid = self.hear(time.monotonic() + IMPORT_S, new=True)
        except BaseException:  # an answer that comes later would be taken for another's
            self.close()
            os.close(write_in)
            os.close(read_out)
            raise
        finally:
            os.close(read_in)
            os.close(write_out)
        return Forked(self, pid, os.fdopen(write_in, "wb", 0), os.fdopen(read_out, "rb"))

    def code(self, pid: int, deadline: float | None) -> int | None:
        """The exit code of a process, None while it is at work."""
        with self.lock:
            while pid not in self.codes:
                try:
                    self.hear(deadline)
                except TimeoutError:
                    return None
                except OSError:  # the server is gone, and its processes with it
                    return -signal.SIGKILL
            return self.codes[pid]

    def hear(self, deadline: float | None, new: bool = False) -> int:
        """Take in what the server says until a process has ended, or until there is a new one.

        Raises:
            TimeoutError: it said nothing.
            ConnectionError: it has ended.
        """
        while True:
            left = None if deadline is None else max(1e-3, deadline - time.monotonic())
            self.channel.settimeout(left)
            message = self.channel.recv(4096)
            if not message:
                raise ConnectionError("the process that workers are forked from has ended")
            answer = json.loads(message)
            pid, ended = int(answer["pid"]), "code" in answer
            if ended:
                self.codes[pid] = answer["code"]
                self.living.discard(pid)
            else:
                self.codes.pop(pid, None)  # of an older process that had this number
                self.living.add(pid)
            if ended != new:
                return pid

    @property
    def idle(self) -> bool:
        """Whether all of its processes are known to have ended."""
        return not self.living

    def close(self) -> None:
        self.channel.close()
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()


servers: dict[tuple[Any, ...], Server] = {}
#: Threads that start processes take turns: two would start two servers of one environment.
turn = threading.Lock()


def forked(launch: Launch, environ: Mapping[str, str], log: int) -> Forked:
    """A process from the server of this environment; a server that is not there yet starts."""
    with turn:
        return fork(launch, environ, log)


def fork(launch: Launch, environ: Mapping[str, str], log: int) -> Forked:
    relevant = {name: value for name, value in environ.items() if name != VOLATILE}
    key = (*launch.preload, launch.cores, os.getcwd(), *sorted(relevant.items()))
    server = servers.pop(key, None)
    if server is None or server.process.poll() is not None:
        close_at_exit()
        idle = [old for old in servers if servers[old].idle]
        for old in idle[: max(0, len(servers) + 1 - KEPT)]:
            servers.pop(old).close()
        server = Server(environ, launch.cores, launch.preload)
    process = server.fork(launch.command[launch.command.index("-m") + 1 :], log)
    servers[key] = server  # the last in use is the last to go
    return process


@functools.cache
def close_at_exit() -> None:
    atexit.register(close_servers)


def close_servers() -> None:
    """End all servers, and with them whatever was forked from them."""
    while servers:
        servers.popitem()[1].close()
