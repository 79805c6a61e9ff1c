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

from dualml.errors import TrialError, UserError
from dualml.launch.doors import Strangers, accept_each
from dualml.launch.greeting import Greeting, differing
from dualml.launch.shelf import Shelf
from dualml.launch.wire import SILENT_S, Wire, answer, reason
from dualml.store.sessions import Failure, current, failure, over

POLL_S = 0.02
#: Seconds that the ranks have at the end to learn of it.
LEAVE_S = 5.0
#: Largest number of unauthenticated connections, and of connections of one rank's workers (only
#: one worker is active at a time).
MOST_STRANGERS, MOST_WORKERS = 16, 8
#: Maximum number of refusals that are recorded.
MOST_REFUSED = 100


class Lost(TrialError):
    """A rank on another machine is gone, and the run cannot continue without it."""


@dataclass
class Guest:
    """A rank that has connected: its machine, whether it announced that it leaves, and the number
    of its workers' connections."""

    host: str
    left: bool = False
    workers: int = 0


@dataclass
class Hub:
    """Server for the ranks of a run on other machines.

    Args:
        host, port: where it listens; port 0 takes any free one.
        token: see `dualml.launch.connection.token_for`.
        size: number of ranks, including this process.
    """

    host: str
    port: int
    token: bytes
    size: int
    same: Mapping[str, str] = field(default_factory=dict)
    run: Path | None = None
    guests: dict[int, Guest] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.strangers = Strangers(MOST_STRANGERS)
        try:
            info = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            address = (str(info[4][0]), int(info[4][1]))
            self.door = socket.create_server(address, family=info[0], backlog=256)
            self.port = int(self.door.getsockname()[1])
        except OSError as error:
            raise UserError(
                f"rank 0 cannot listen at {self.address}: {reason(error)}; "
                "HOST must be an address of rank 0's machine, and the port free"
            ) from None

    @property
    def address(self) -> str:
        """Address for ``--rendezvous``."""
        return f"tcp://{self.host}:{self.port}"

    def open(self, run: Path, same: Mapping[str, str]) -> None:
        """Start to serve connections, including those that are waiting.

        Args:
            run: the run folder.
            same: versions that must be equal on all machines
                (`dualml.launch.credentials.versions`).
        """
        self.run, self.same = run.resolve(), same
        listen = threading.Thread(target=accept_each, args=[self.door, self.greet], daemon=True)
        listen.start()

    def greet(self, door: socket.socket) -> None:
        """Authenticate a connection, and serve its rank until it leaves."""
        with self.strangers.admit(door):
            wire = answer(door, self.token)
        if wire is None:
            return
        # The caller knows the token, but its messages may still be invalid.
        with contextlib.closing(wire), contextlib.suppress(OSError, ValueError):
            header, _ = wire.receive()
            with self.changed:  # one at a time: two may say the same rank
                try:
                    hello = Greeting.parse(header)
                    why = self.unfit(hello)
                except ValueError as error:
                    why = f"a greeting that is not understood: {error}"
                if why and len(self.refused) < MOST_REFUSED:
                    self.refused.append(why)
                if not why and hello.worker:
                    self.guests[hello.rank].workers += 1
                elif not why:
                    self.guests[hello.rank] = Guest(hello.host)
                self.changed.notify_all()
            try:
                wire.send({"refused": why} if why else {"size": self.size})
            except OSError:
                if not why:
                    self.forget(hello)
                return
            if not why:
                (self.serve_worker if hello.worker else self.watch)(wire, hello.rank)

    def forget(self, hello: Greeting) -> None:
        """Undo the registration of a rank that did not receive the answer and may connect again."""
        with self.changed:
            if hello.worker:
                self.guests[hello.rank].workers -= 1
            else:
                del self.guests[hello.rank]
            self.changed.notify_all()

    def serve_worker(self, wire: Wire, rank: int) -> None:
        """Serve the worker of a rank, which may compute for a long time between two messages."""
        wire.wait = None
        try:
            self.serve(wire, rank)
        finally:
            with self.changed:
                self.guests[rank].workers -= 1

    def watch(self, wire: Wire, rank: int) -> None:
        """Serve a rank; it is lost if its connection ends without a goodbye."""
        wire.wait = SILENT_S
        guest, why = self.guests[rank], "its connection to rank 0 ended"
        try:
            self.serve(wire, rank)
            guest.left = True
            if not over(self.path):
                self.lose(rank, f"it was ended (on {guest.host})")
            wire.send({})
        except TimeoutError:
            why = f"rank 0 heard nothing of it for {SILENT_S:g} s"
        except ValueError as error:
            why = f"its connection to rank 0 was ended: {error}"
        finally:
            if not guest.left:
                self.lose(rank, f"{why} (on {guest.host})")

    def unfit(self, hello: Greeting) -> str | None:
        """Return why a rank cannot take part in this run, as a sentence for both sides; None if it
        can."""
        rank, who, guest = hello.rank, str(hello), self.guests.get(hello.rank)
        if not 0 < rank < self.size:
            return f"rank {rank} of {self.size}: the other ranks are 1 to {self.size - 1}"
        if hello.size != self.size:
            return f"{who} says --world-size {hello.size}, rank 0 {self.size}"
        if why := differing(self.same, hello.same, hello.clock - time.time()):
            return f"{who} {why}"
        if not hello.worker and guest is not None:
            return f"{who}: rank {rank} is there already, on {guest.host}"
        if hello.worker and guest is None:
            return f"{who}: a worker of rank {rank}, which is not there"
        if hello.worker and guest is not None and guest.workers >= MOST_WORKERS:
            return f"{who}: {guest.workers} workers of rank {rank} are there already"
        return None

    def gather(
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
            UserError: ranks did not connect within ``seconds``; the text names them and the last
                refusal.
        """
        end, told, refused = time.monotonic() + seconds, list[int](), 0
        with self.changed:
            while missing := [r for r in range(1, self.size) if r not in self.guests]:
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

    def lose(self, rank: int, why: str) -> None:
        """Mark a rank as lost, and record it as a failure of the current session."""
        with self.changed:
            self.lost[rank] = why
            self.changed.notify_all()
        number = current(self.path)
        if number is not None and not (self.path / failure(number, rank).name).exists():
            failure(number, rank).write(self.path, Failure(code=-1, reason=why, result=None))

    def check(self) -> None:
        """Raise `RankLost` where a rank is gone."""
        if self.lost:
            rank, why = next(iter(self.lost.items()))
            raise Lost(f"rank {rank}: {why}")

    def close(self) -> None:
        """Give the ranks a moment to learn of the announced end, then stop listening."""
        end = time.monotonic() + LEAVE_S
        while time.monotonic() < end and self.run is not None:
            if all(g.left or r in self.lost for r, g in self.guests.items()):
                break
            time.sleep(POLL_S)
        with contextlib.suppress(OSError):
            self.door.shutdown(socket.SHUT_RDWR)
        self.door.close()

    @property
    def path(self) -> Path:
        """The run folder; only after `open`."""
        assert self.run is not None
        return self.run

    def serve(self, wire: Wire, rank: int) -> None:
        """Answer the requests of one rank, or of its worker, until it says goodbye.

        Raises:
            OSError: its connection ended, or it is silent (`TimeoutError`).
            ValueError: what was received is not a valid message.
        """
        with contextlib.closing(Shelf(self.path, rank)) as shelf:
            while True:
                header, body = wire.receive()
                if header.get("op") == "bye":
                    return
                wire.send(*shelf.answer(header, body))
