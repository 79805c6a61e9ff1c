"""The judge's end of the isolation: reusable servers, and cells in which one group of ranks does
one job."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dualml.backend import backends
from dualml.common.bounded_io import Header
from dualml.common.errors import escape_unprintable
from dualml.common.json_types import JsonMapping
from dualml.common.machine import python_argv
from dualml.course.exercise import MachineFault
from dualml.course.frames import Arrays, receive, send
from dualml.course.isolation import bubblewrap
from dualml.course.isolation.detect import Isolation, Kind, candidates
from dualml.launch.process import IMPORT_S

#: Variables that a server inherits, if they are set: library paths and numbers of threads.
#: Students' code sees no other variable of the environment.
INHERITED_VARIABLES = (
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "KMP_AFFINITY",
    "TMPDIR",
)
#: Time limits in seconds: for setting up the isolation, and for the rest of a warden's message once
#: it has begun.
WALLS_S, MESSAGE_S, END_S, POLL_S = 30.0, 30.0, 10.0, 0.1
#: Beginning of the error if the warden of the ranks is gone or silent.
WARDEN_LOST = "the process that supervises the ranks is lost"
#: Socket type that keeps message boundaries; macOS has no SOCK_SEQPACKET.
MESSAGES = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_DGRAM
#: Largest number of bytes of a server's answer.
ANSWER = 4096


class IsolationServer:
    """Connection to a `dualml.course.isolation.server` process, which the constructor starts.

    Args:
        backend: backend of the exercise; empty if it needs none.
        network: whether ranks communicate by the framework's own means.
        kind: ``bubblewrap`` starts the server in it; with another kind each request says whether
            its ranks are isolated.
    """

    def __init__(self, backend: str, network: bool, kind: Kind = "namespaces") -> None:
        info = backends()[backend or "numpy"]
        environ = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        environ |= {
            **info.environ(1),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": "/tmp",
            "CUDA_VISIBLE_DEVICES": "",
            "PATH": "/usr/bin:/bin",
        }
        paths = filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
        environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, MESSAGES)
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.lock, self.ready = threading.Lock(), False
        with theirs:
            module = python_argv("-m", "dualml.course.isolation.server")
            preload = info.preload[1:] if backend else ()  # not the backend itself: a solution
            if network:
                drives = (
                    f"{info.package}.course.drive_{name}" for name in ("rpc", "group", "remote")
                )
                preload = (*preload, *drives)
            modules = [drive_module(backend), *preload]
            around = bubblewrap.command(modules, environ) if kind == "bubblewrap" else []
            words = [*around, *module, str(theirs.fileno()), backend or "numpy", kind, *modules]
            self.process = subprocess.Popen(
                words,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.errors,
                cwd="/",
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def start(self, walls: bool, network: bool, descriptors: Sequence[int]) -> int:
        """Have the server fork a warden, and return the warden's process number.

        Args:
            walls: whether its ranks are isolated.
            network: whether they can reach one another over a loopback interface.
            descriptors: of a connection to the judge, and of one output file per rank.

        Raises:
            OSError: the server has ended or does not answer.
        """
        request = {"walls": walls, "network": network}
        with self.lock:
            if not self.ready:
                self.receive_answer(IMPORT_S)
                self.ready = True
            socket.send_fds(self.channel, [json.dumps(request).encode()], list(descriptors))
            return int(self.receive_answer(WALLS_S)["pid"])

    def receive_answer(self, seconds: float) -> dict[str, Any]:
        """Receive the server's next answer; raise `OSError` if there is none within ``seconds``, or
        the server has ended."""
        self.channel.settimeout(seconds)
        message = self.channel.recv(ANSWER)
        if not message:
            raise ConnectionError("the process that checks are forked from has ended")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def last_error_line(self) -> str:
        """Return the last non-empty line of the server's error output, unprintable characters
        escaped, once it has ended; empty if it does not end within a second, or wrote nothing."""
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            self.process.wait(1.0)
            self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - ANSWER))
            lines = self.errors.read(ANSWER).decode("utf-8", "replace").split("\n")
            return escape_unprintable(next((line for line in reversed(lines) if line.strip()), ""))
        return ""

    def close(self) -> None:
        """End the server."""
        self.channel.close()
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        self.errors.close()


servers: dict[tuple[str, bool], IsolationServer] = {}
turn = threading.Lock()


def server_for(backend: str, network: bool) -> IsolationServer:
    """Return the running server for a backend, with a ``network`` or without, whose ranks are
    isolated by namespaces or not at all; start one if there is none."""
    with turn:
        server = servers.get((backend, network))
        if server is None or server.process.poll() is not None:
            server = servers[backend, network] = IsolationServer(backend, network)
        return server


def drive_module(backend: str) -> str:
    """Return the module that runs the calls of a framework's exercises; without a framework
    dualml's own."""
    return f"{backends()[backend].package}.course.drive" if backend else "dualml.course.drive"


@atexit.register
def close_servers() -> None:
    """End all servers and the processes forked from them; called when this process exits."""
    while servers:
        servers.popitem()[1].close()


@functools.cache
def find_isolation(backend: str) -> Isolation:
    """Return the best isolation that this machine supports, found once per process and backend by
    trying, which starts a server; its kind is ``none``, with the reason, if there is none.

    Raises:
        MachineFault: checks cannot be started at all.
        UserError: `SWITCH` has an unknown value.
    """
    why = ""
    for asked in candidates():
        try:
            with open_cell(backend, 1, asked):
                return asked
        except OSError as error:
            why = why or str(error)
    return Isolation("none", why)


@dataclass
class SandboxCell:
    """A running group of isolated ranks.

    Attributes:
        control: connection to the warden; closing it ends all ranks.
        printed: file descriptors of each rank's output.
    """

    control: socket.socket
    printed: Sequence[int]

    def send(self, header: JsonMapping, arrays: Arrays) -> None:
        """Send the job with its files, or a call with its inputs.

        Raises:
            MachineFault: the warden does not accept it.
            ValueError: the message is too large, as for `encode`.
        """
        self.control.settimeout(MESSAGE_S)
        try:
            send(self.control, header, arrays)
        except OSError as error:
            raise MachineFault(f"{WARDEN_LOST}: {error}") from None

    def wait_for_result(
        self, seconds: float, is_cancelled: Callable[[], bool]
    ) -> tuple[Header, dict[str, Any]] | None:
        """Return the result of the job's start or of a call; None if the check was cancelled
        before it came.

        Args:
            seconds: time until the result begins to arrive; the rest of it has `MESSAGE_S`.
            is_cancelled: function that returns whether the check was cancelled.

        Raises:
            MachineFault: the warden is lost, is silent for ``seconds`` or sends no whole message,
                or reports that the machine failed.
        """
        deadline = time.monotonic() + seconds
        while not select.select([self.control], [], [], POLL_S)[0]:
            if is_cancelled():
                return None
            if time.monotonic() > deadline:
                raise MachineFault(f"{WARDEN_LOST}: silent for {seconds:g} s")
        try:
            header, arrays = receive(self.control, MESSAGE_S)
        except (OSError, ValueError) as error:
            raise MachineFault(f"{WARDEN_LOST}: {error}") from None
        if header.get("event") == "failed":
            raise MachineFault(str(header.get("why")))
        return header, arrays

    def tail(self, rank: int, size: int = 4000) -> str:
        """Return the last ``size`` bytes of a rank's output as text; empty if it cannot be read."""
        with contextlib.suppress(OSError):
            length = os.fstat(self.printed[rank]).st_size
            start = max(0, length - size)
            return os.pread(self.printed[rank], size, start).decode("utf-8", "replace")
        return ""


@contextlib.contextmanager
def open_cell(
    backend: str, ranks: int, isolation: Isolation, network: bool = False
) -> Iterator[SandboxCell]:
    """Open a cell for ``ranks`` ranks, whose processes have all ended at the end of the block.

    Raises:
        MachineFault: the machine cannot start it: no memory, no processes, or a killed server.
        OSError: the system does not allow the isolation.
    """
    ours, theirs = socket.socketpair()
    printed: list[int] = []
    alone: list[IsolationServer] = []  # of bubblewrap, whose server does one job
    server: IsolationServer | None = None
    pid = 0
    try:
        with theirs:
            if isolation.kind == "bubblewrap":
                alone.append(IsolationServer(backend, network, isolation.kind))
            try:
                printed += [printed_file(rank) for rank in range(ranks)]
                server = alone[0] if alone else server_for(backend, network)
                pid = server.start(isolation.walls, network, [theirs.fileno(), *printed])
            except (OSError, ValueError) as error:
                if alone:
                    said = alone[0].last_error_line() or str(error)
                    raise OSError(f"bubblewrap does not start: {said}") from None
                discard(server)
                raise MachineFault(f"checks cannot be started: {error}") from None
        try:
            first, _ = receive(ours, WALLS_S)
        except (OSError, ValueError) as error:
            raise MachineFault(f"checks cannot be started: {error}") from None
        if first.get("event") == "no walls":
            raise OSError(f"user namespaces are not allowed: {first.get('why')}")
        yield SandboxCell(ours, printed)
    finally:
        wait_for_end(ours, 0 if alone else pid)
        for descriptor in printed:
            os.close(descriptor)
        for one_job in alone:
            one_job.close()


def discard(server: IsolationServer | None) -> None:
    """End a server that does not answer, but no server that has replaced it."""
    if server is None:
        return
    with turn:
        for key in [key for key, kept in servers.items() if kept is server]:
            del servers[key]
    server.close()


def wait_for_end(control: socket.socket, pid: int) -> None:
    """Tell a warden to end its ranks and itself, wait for that, and close ``control``; kill a
    warden that does not end in `END_S` seconds, and wait at most as long again.

    Args:
        pid: process number of the warden, valid until it closes ``control``; 0: it is not killed
            here, the server ends it.
    """
    for _ in range(2):
        with contextlib.suppress(ConnectionError):
            control.shutdown(socket.SHUT_WR)
        control.settimeout(END_S)
        try:
            while control.recv(1 << 16):
                pass
            break
        except TimeoutError:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL) if pid else None
        except OSError:
            break
    control.close()


def printed_file(rank: int) -> int:
    """Return the descriptor of an unnamed file for a rank's output."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"printed{rank}")
    with tempfile.TemporaryFile() as stream:
        return os.dup(stream.fileno())
