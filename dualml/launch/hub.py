"""Rank 0's end of a run whose ranks share no folder: what they read of its run folder, and write
into it, goes over the wire (`dualml.launch.wire`).

Every rank has one connection that is its sign of life, and its worker another; each is served by a
thread. Nothing outside of the run folder can be named.
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
#: At the end the ranks have so long to hear of it.
LEAVE_S = 5.0
#: Connections at a time of those who have not proved that they know the token, and of the workers
#: of one rank, which has one at work.
MOST_STRANGERS, MOST_WORKERS = 16, 8
#: Of those who are refused, so many are named.
MOST_REFUSED = 100


class Lost(TrialError):
    """A rank on another machine is gone, and the run cannot go on without it."""


@dataclass
class Guest:
    """A rank that came: from where, whether it said that it leaves, and connections of its
    workers."""

    host: str
    left: bool = False
    workers: int = 0


@dataclass
class Hub:
    """The ranks of a run on other machines.

    Args:
        host, port: where this listens, and nowhere else; port 0: any free one.
        token: see `dualml.launch.wire.token_for`.
        size: ranks, this process's among them.
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
        return f"tcp://{self.host}:{self.port}"

    def open(self, run: Path, same: Mapping[str, str]) -> None:
        """Answer those who have come, and who come from now on.

        Args:
            same: what must be the same on all machines (`dualml.launch.seat.versions`).
        """
        self.run, self.same = run.resolve(), same
        listen = threading.Thread(target=accept_each, args=[self.door, self.greet], daemon=True)
        listen.start()

    def greet(self, door: socket.socket) -> None:
        """Find out who it is, and serve a rank until it goes."""
        with self.strangers.admit(door):
            wire = answer(door, self.token)
        if wire is None:
            return
        # Of somebody who knows the token and still says what no rank says.
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
        """Undo the registration of somebody who has not heard of it, and may come again."""
        with self.changed:
            if hello.worker:
                self.guests[hello.rank].workers -= 1
            else:
                del self.guests[hello.rank]
            self.changed.notify_all()

    def serve_worker(self, wire: Wire, rank: int) -> None:
        """Serve the worker of a rank, which may compute for long between two messages."""
        wire.wait = None
        try:
            self.serve(wire, rank)
        finally:
            with self.changed:
                self.guests[rank].workers -= 1

    def watch(self, wire: Wire, rank: int) -> None:
        """Serve a rank; where it goes without a word, it is lost."""
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
        """Return why somebody cannot be a rank of this run, as a sentence for both sides."""
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
        """Wait until all ranks have come.

        Args:
            waiting: called whenever who is missing has changed.
            refusing: called with why somebody was refused.
            ended: why somebody will never come, where that is known.

        Raises:
            UserError: ranks did not come within ``seconds``; the text has their numbers, and who
                was refused.
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
        """Remember it, and leave word for the session at work."""
        with self.changed:
            self.lost[rank] = why
            self.changed.notify_all()
        number = current(self.path)
        if number is not None and not (self.path / failure(number, rank).name).exists():
            failure(number, rank).write(self.path, Failure(code=-1, reason=why, result=None))

    def check(self) -> None:
        """Raises `Lost` where a rank is gone."""
        if self.lost:
            rank, why = next(iter(self.lost.items()))
            raise Lost(f"rank {rank}: {why}")

    def close(self) -> None:
        """After the end was announced: give the ranks a moment to hear of it."""
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
        """The run folder."""
        assert self.run is not None
        return self.run

    def serve(self, wire: Wire, rank: int) -> None:
        """Answer one rank, or its worker, until it says that it leaves.

        Raises:
            OSError: its connection ended, or it is silent (`TimeoutError`).
            ValueError: what came is no message.
        """
        with contextlib.closing(Shelf(self.path, rank)) as shelf:
            while True:
                header, body = wire.receive()
                if header.get("op") == "bye":
                    return
                wire.send(*shelf.answer(header, body))
