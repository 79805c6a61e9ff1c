"""Processes to start: directly, or forked from a process that has imported the framework
already."""

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

from dualml.common.files import open_to_append
from dualml.common.machine import python_argv
from dualml.launch.child import on_death_of_parent

#: Longest import of a framework on a busy machine, in seconds.
IMPORT_S = 120.0
#: Maximum number of servers, one for each environment that workers need.
MAX_SERVERS = 4
#: Variable that, set to 0, makes every worker import its framework itself.
SWITCH = "DUALML_FORK"
#: Variable that changes with every test and that no import reads.
VOLATILE = "PYTEST_CURRENT_TEST"


@dataclass(frozen=True)
class Launch:
    """One process to start.

    Attributes:
        command: its command line.
        environ: variables added to the environment.
        log: the file to which its standard error is appended.
        preload: modules that may be imported already if its command is ``python -m …``; it is then
            forked from a process that has imported them, where the system can do so safely.
        cores: number of cores to which it will confine itself (`dualml.common.machine.pin_cores`);
            0 for all.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    log: Path
    preload: Sequence[str] = ()
    cores: int = 0

    def start(self) -> Process:
        """Start the process in a session of its own, with pipes to its input and output: forked if
        it has modules to preload, `can_fork` allows it and this works, else as a new process."""
        environ = {**os.environ, **self.environ}
        with open_to_append(self.log) as output:
            if self.preload and can_fork(environ):
                with contextlib.suppress(
                    OSError
                ):  # it did not start: then neither will this, but say why
                    return fork_worker(self, environ, output.fileno())
            return subprocess.Popen(
                self.command,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )


def can_fork(environ: Mapping[str, str]) -> bool:
    """Return whether workers may be forked: on Linux only, where this is tested, and not if the
    variable `SWITCH` is 0 in ``environ``."""
    return sys.platform == "linux" and environ.get(SWITCH) != "0"


class ForkedProcess:
    """A process forked by a `ForkServer`, with ``pid``, ``stdin``, ``stdout`` and `wait` as of
    `subprocess.Popen`."""

    def __init__(self, server: ForkServer, pid: int, stdin: Any, stdout: Any) -> None:
        self.server, self.pid, self.stdin, self.stdout = server, pid, stdin, stdout

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process and return its exit code, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: it is still running.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.server.exit_code(self.pid, deadline)) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout or 0.0)
        return code


Process = subprocess.Popen[bytes] | ForkedProcess


def start_session(
    command: Sequence[str],
    output: Any = subprocess.DEVNULL,
    parent_death: signal.Signals | None = None,
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start a process without input in a session of its own, so that signals of the terminal do not
    reach it.

    Args:
        output: file that gets what it prints; None for the files of this process.
        parent_death: signal that the system sends it when this process dies.
        options: of `subprocess.Popen`.

    Raises:
        OSError: the command cannot be started.
    """
    if parent_death is not None:
        options["preexec_fn"] = functools.partial(on_death_of_parent, parent_death)
    return subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        **options,
    )


class ForkServer:
    """The owner's end of one `dualml.launch.forkserver`.

    Args:
        environ: variables of the server and its processes.
        cores: number of cores for the import; 0 for all.
        preload: modules to import.
    """

    def __init__(self, environ: Mapping[str, str], cores: int, preload: Sequence[str]) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lock, self.codes = threading.Lock(), dict[int, int]()
        self.living = set[int]()
        with theirs:
            module = python_argv("-m", "dualml.launch.forkserver")
            words = [*module, str(theirs.fileno()), str(cores), *preload]
            self.process = start_session(words, env=environ, pass_fds=[theirs.fileno()])

    def fork(self, words: Sequence[str], log: int) -> ForkedProcess:
        """Fork a process that runs ``python -m WORDS``, with standard error in file descriptor
        ``log``; wait until it has started.

        Raises:
            OSError: the server has ended, or does not answer.
        """
        (read_in, write_in), (read_out, write_out) = os.pipe(), os.pipe()
        try:
            with self.lock:
                request = json.dumps(list(words)).encode()
                socket.send_fds(self.channel, [request], [read_in, write_out, log])
                pid = self.read_answer(time.monotonic() + IMPORT_S, new=True)
        except BaseException:  # an answer that comes later would be taken for another's
            self.close()
            os.close(write_in)
            os.close(read_out)
            raise
        finally:
            os.close(read_in)
            os.close(write_out)
        return ForkedProcess(self, pid, os.fdopen(write_in, "wb", 0), os.fdopen(read_out, "rb"))

    def exit_code(self, pid: int, deadline: float | None) -> int | None:
        """Wait for a process and return its exit code, negative for a signal (−9 if the server is
        gone); None if it is still running at ``deadline`` (of `time.monotonic`; None: no limit)."""
        with self.lock:
            while pid not in self.codes:
                try:
                    self.read_answer(deadline)
                except TimeoutError:
                    return None
                except OSError:  # the server is gone, and its processes with it
                    return -signal.SIGKILL
            return self.codes[pid]

    def read_answer(self, deadline: float | None, new: bool = False) -> int:
        """Read answers of the server until a process has ended or, if ``new``, until a process has
        started; return its pid.

        Raises:
            TimeoutError: there was no answer before ``deadline``.
            ConnectionError: the server has ended.
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
                self.codes.pop(pid, None)  # of an earlier process with the same pid
                self.living.add(pid)
            if ended != new:
                return pid

    @property
    def idle(self) -> bool:
        """Whether all of its processes are known to have ended."""
        return not self.living

    def close(self) -> None:
        """Kill the server, and with it its processes."""
        self.channel.close()
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()


servers: dict[tuple[Any, ...], ForkServer] = {}
#: Lock of threads that start processes: two could start two servers for one environment.
turn = threading.Lock()


def fork_worker(launch: Launch, environ: Mapping[str, str], log: int) -> ForkedProcess:
    """Fork a worker from the server of this environment, which is started if there is none.

    Raises:
        OSError: the server has ended, or does not answer.
    """
    with turn:
        return fork_from_server(launch, environ, log)


def fork_from_server(launch: Launch, environ: Mapping[str, str], log: int) -> ForkedProcess:
    """Fork a worker as `fork_worker` does; the caller holds the lock `turn`."""
    key, server = find_server(launch, environ)
    process = server.fork(launch.command[launch.command.index("-m") + 1 :], log)
    servers[key] = server  # least recently used servers are closed first
    return process


def find_server(launch: Launch, environ: Mapping[str, str]) -> tuple[tuple[Any, ...], ForkServer]:
    """Return the server of an environment, which is started if there is none, and take it out of
    `servers`, where the caller puts it back under the key that is returned, too.

    If there are already `MAX_SERVERS` servers, a new one replaces idle ones. The caller holds the
    lock `turn`.
    """
    key = server_key(launch, environ)
    server = servers.pop(key, None)
    if server is None or server.process.poll() is not None:
        close_at_exit()
        idle = [old for old in servers if servers[old].idle]
        for old in idle[: max(0, len(servers) + 1 - MAX_SERVERS)]:
            servers.pop(old).close()
        server = ForkServer(environ, launch.cores, launch.preload)
    return key, server


def server_key(launch: Launch, environ: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the key in `servers` of the server that a process is forked from."""
    relevant = {name: value for name, value in environ.items() if name != VOLATILE}
    return (*launch.preload, launch.cores, os.getcwd(), *sorted(relevant.items()))


def close_other_servers(launch: Launch) -> None:
    """End the idle servers, except the one that ``launch`` is forked from: each holds a framework
    in memory."""
    own = server_key(launch, {**os.environ, **launch.environ})
    with turn:
        for key in [key for key, server in servers.items() if key != own and server.idle]:
            servers.pop(key).close()


def start_servers(launches: Sequence[Launch]) -> None:
    """Start the fork servers of these processes without waiting for them, so that all import their
    frameworks at the same time: a fork waits for its own server."""
    for launch in launches:
        environ = {**os.environ, **launch.environ}
        if launch.preload and can_fork(environ):
            with turn, contextlib.suppress(OSError):
                key, server = find_server(launch, environ)
                servers[key] = server


@functools.cache
def close_at_exit() -> None:
    """Register `close_servers` to run at the exit of this process; once, however often called."""
    atexit.register(close_servers)


def close_servers() -> None:
    """End all servers, and with them every process forked from them."""
    while servers:
        servers.popitem()[1].close()
