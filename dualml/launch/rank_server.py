"""Rank 0's server for ranks on other machines that do not see the run folder.

They read and write the run folder through it (`dualml.launch.connection`). Every rank keeps one
connection as its sign of life, and its worker another; each is served by a thread. Paths outside of
the run folder cannot be named.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dualml.common.errors import TrialError, UserError
from dualml.experiment.store.sessions import RankFailure, current_session, failure_file, has_ended
from dualml.launch.connection import SILENT_S, Connection, authenticate_caller, describe_error
from dualml.launch.file_service import FileService
from dualml.launch.greeting import Greeting, mismatch_reason
from dualml.launch.listener import UnauthenticatedConnections, accept_connections

POLL_S = 0.02
#: Seconds that the ranks have at the end to learn of it.
LEAVE_S = 5.0
#: Largest number of unauthenticated connections, and of connections of one rank's workers (only
#: one worker is active at a time).
MAX_STRANGERS, MAX_RANK_WORKERS = 16, 8
#: Maximum number of refusals that are recorded.
MAX_REFUSALS = 100


class RankLost(TrialError):
    """A rank on another machine is gone, and the run cannot continue without it."""


@dataclass
class ConnectedRank:
    """A rank that has connected: its machine, whether it announced that it leaves, and the number
    of its workers' connections."""

    host: str
    departed: bool = False
    workers: int = 0


@dataclass
class RankServer:
    """Server for the ranks of a run on other machines; it listens from its construction on, and
    serves from `open` on.

    Args:
        host, port: where it listens; port 0 takes any free one.
        token: see `dualml.launch.connection.token_for`.
        size: number of ranks, including this process.

    Attributes:
        required_versions, run: versions that all machines must have and the run folder, set by
            `open`.
        connected: rank → what is known of each rank that ever connected, also of lost ones.
        lost: rank → why it is lost.
        refused: reasons of refusals.

    Raises:
        UserError: this machine cannot listen at ``host`` and ``port``.
    """

    host: str
    port: int
    token: bytes
    size: int
    required_versions: Mapping[str, str] = field(default_factory=dict)
    run: Path | None = None
    connected: dict[int, ConnectedRank] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.unauthenticated = UnauthenticatedConnections(MAX_STRANGERS)
        try:
            info = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            address = (str(info[4][0]), int(info[4][1]))
            self.listener = socket.create_server(address, family=info[0], backlog=256)
            self.port = int(self.listener.getsockname()[1])
        except OSError as error:
            raise UserError(
                f"rank 0 cannot listen at {self.address}: {describe_error(error)}; "
                "HOST must be an address of rank 0's machine, and the port free"
            ) from None

    @property
    def address(self) -> str:
        """Address of this server, ``tcp://HOST:PORT``, for ``--rendezvous`` of the other ranks."""
        return f"tcp://{self.host}:{self.port}"

    def open(self, run: Path, same: Mapping[str, str]) -> None:
        """Start to serve connections, including those that are waiting.

        Args:
            run: the run folder.
            same: versions that must be equal on all machines
                (`dualml.launch.credentials.versions`).
        """
        self.run, self.required_versions = run.resolve(), same
        listen = threading.Thread(
            target=accept_connections, args=[self.listener, self.handle_connection], daemon=True
        )
        listen.start()

    def handle_connection(self, door: socket.socket) -> None:
        """Authenticate a connection, check the rank's greeting, and serve it until it leaves; a
        rank that does not fit is told why, and refused."""
        with self.unauthenticated.admit(door):
            wire = authenticate_caller(door, self.token)
        if wire is None:
            return
        # The caller knows the token, but its messages may still be invalid.
        with contextlib.closing(wire), contextlib.suppress(OSError, ValueError):
            header, _ = wire.receive()
            with self.changed:  # one at a time: two may say the same rank
                try:
                    hello = Greeting.parse(header)
                    why = self.refusal_reason(hello)
                except ValueError as error:
                    why = f"a greeting that is not understood: {error}"
                if why and len(self.refused) < MAX_REFUSALS:
                    self.refused.append(why)
                if not why and hello.worker:
                    self.connected[hello.rank].workers += 1
                elif not why:
                    self.connected[hello.rank] = ConnectedRank(hello.host)
                self.changed.notify_all()
            try:
                wire.send({"refused": why} if why else {"size": self.size})
            except OSError:
                if not why:
                    self.unregister(hello)
                return
            if not why:
                (self.serve_worker if hello.worker else self.serve_rank)(wire, hello.rank)

    def unregister(self, hello: Greeting) -> None:
        """Undo the registration of a rank that did not receive the answer and may connect again."""
        with self.changed:
            if hello.worker:
                self.connected[hello.rank].workers -= 1
            else:
                del self.connected[hello.rank]
            self.changed.notify_all()

    def serve_worker(self, wire: Connection, rank: int) -> None:
        """Serve the worker of a rank until it leaves; it may compute for a long time between two
        messages, and its end does not make the rank lost."""
        wire.idle_timeout = None
        try:
            self.answer_requests(wire, rank)
        finally:
            with self.changed:
                self.connected[rank].workers -= 1

    def serve_rank(self, wire: Connection, rank: int) -> None:
        """Serve a rank until it leaves; it is lost if its connection ends without a goodbye, it is
        silent for `SILENT_S` seconds or sends what is no message, or it says goodbye before rank 0
        has announced the end."""
        wire.idle_timeout = SILENT_S
        guest, why = self.connected[rank], "its connection to rank 0 ended"
        try:
            self.answer_requests(wire, rank)
            guest.departed = True
            if not has_ended(self.run_folder):
                self.mark_lost(rank, f"it was ended (on {guest.host})")
            wire.send({})
        except TimeoutError:
            why = f"rank 0 heard nothing of it for {SILENT_S:g} s"
        except ValueError as error:
            why = f"its connection to rank 0 was ended: {error}"
        finally:
            if not guest.departed:
                self.mark_lost(rank, f"{why} (on {guest.host})")

    def refusal_reason(self, hello: Greeting) -> str | None:
        """Return why a rank cannot take part in this run, as a sentence for both sides; None if it
        can."""
        rank, who, guest = hello.rank, str(hello), self.connected.get(hello.rank)
        if not 0 < rank < self.size:
            return f"rank {rank} of {self.size}: the other ranks are 1 to {self.size - 1}"
        if hello.size != self.size:
            return f"{who} says --world-size {hello.size}, rank 0 {self.size}"
        if why := mismatch_reason(
            self.required_versions, hello.versions, hello.clock - time.time()
        ):
            return f"{who} {why}"
        if not hello.worker and guest is not None:
            return f"{who}: rank {rank} is there already, on {guest.host}"
        if hello.worker and guest is None:
            return f"{who}: a worker of rank {rank}, which is not there"
        if hello.worker and guest is not None and guest.workers >= MAX_RANK_WORKERS:
            return f"{who}: {guest.workers} workers of rank {rank} are there already"
        return None

    def wait_for_ranks(
        self,
        seconds: float,
        waiting: Callable[[list[int]], None],
        refusing: Callable[[str], None] = lambda why: None,
        ended: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Wait until all ranks have connected.

        Args:
            seconds: to wait, at most.
            waiting: called with the missing ranks whenever they change.
            refusing: called with the reason of each refusal.
            ended: returns why a rank will never connect, or None.

        Raises:
            UserError: ranks did not connect within ``seconds`` (the text names them and the last
                refusal), or, before all had, ``ended`` returned a reason or a rank was lost.
        """
        end, told, refused = time.monotonic() + seconds, list[int](), 0
        with self.changed:
            while missing := [r for r in range(1, self.size) if r not in self.connected]:
                if missing != told:
                    waiting(missing)
                    told = missing
                for text in self.refused[refused:]:
                    refusing(text)
                refused = len(self.refused)
                if why := ended():
                    raise UserError(why)
                if self.lost:
                    raise UserError("; ".join(f"rank {r}: {t}" for r, t in self.lost.items()))
                if time.monotonic() > end:
                    came = f"; refused: {self.refused[-1]}" if self.refused else ""
                    raise UserError(
                        f"ranks {', '.join(map(str, missing))} of {self.size} did not come to "
                        f"{self.address} within {seconds:g} s{came}"
                    )
                self.changed.wait(0.1)

    def mark_lost(self, rank: int, why: str) -> None:
        """Mark a rank as lost, and record it as a failure of the current session, if there is one
        and the rank has reported no failure itself."""
        with self.changed:
            self.lost[rank] = why
            self.changed.notify_all()
        number = current_session(self.run_folder)
        if number is not None and not (self.run_folder / failure_file(number, rank).name).exists():
            failure_file(number, rank).write(
                self.run_folder, RankFailure(code=-1, reason=why, result=None)
            )

    def check_lost(self) -> None:
        """Raise `RankLost` if a rank is lost, for the first that was."""
        if self.lost:
            rank, why = next(iter(self.lost.items()))
            raise RankLost(f"rank {rank}: {why}")

    def close(self) -> None:
        """Wait up to `LEAVE_S` seconds until all connected ranks have left, having learned of the
        announced end, then stop listening."""
        end = time.monotonic() + LEAVE_S
        while time.monotonic() < end and self.run is not None:
            if all(g.departed or r in self.lost for r, g in self.connected.items()):
                break
            time.sleep(POLL_S)
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    @property
    def run_folder(self) -> Path:
        """The run folder; only after `open`."""
        assert self.run is not None
        return self.run

    def answer_requests(self, wire: Connection, rank: int) -> None:
        """Answer the requests of one rank, or of its worker, until it says goodbye.

        Raises:
            OSError: its connection ended, or it is silent (`TimeoutError`).
            ValueError: what was received is not a valid message.
        """
        with contextlib.closing(FileService(self.run_folder, rank)) as shelf:
            while True:
                header, body = wire.receive()
                if header.get("op") == "bye":
                    return
                wire.send(*shelf.handle_request(header, body))
