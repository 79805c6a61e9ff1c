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
from dualml.launch.shelf import Shelf
from dualml.launch.wire import SILENT_S, Header, Wire, answer, reason
from dualml.store.sessions import Failure, current, failure, over

#: Clocks may differ by so much.
CLOCK_S = 60.0
POLL_S = 0.02
#: At the end the ranks have so long to hear of it.
LEAVE_S = 5.0


class Lost(TrialError):
    """A rank on another machine is gone, and the run cannot go on without it."""


def differing(
    here: Mapping[str, str], there: Mapping[str, str], ahead: float, slack: float = 0.0
) -> str | None:
    """What keeps another machine from taking part: a version, or its clock.

    Args:
        here, there: versions by name; all that are ``here`` must be the same there.
        ahead: seconds that its clock is before this one's; ``slack``: as far as that is known.
    """
    for what, version in here.items():
        if (other := there.get(what)) != version:
            received = f"has {what} {other}" if other else f"has no {what}"
            return f"{received}, rank 0 has {version}: install the same"
    if abs(ahead) > CLOCK_S + slack:
        way = "ahead of" if ahead > 0 else "behind"
        return f"has a clock {abs(ahead):.0f} s {way} rank 0's: set the clocks (NTP)"
    return None


@dataclass
class Guest:
    """A rank that came: from where, and whether it said that it leaves."""

    host: str
    left: bool = False


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
            same: what must be the same on all machines (`dualml.launch.mirror.versions`).
        """
        self.run, self.same = run.resolve(), same
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                door, _ = self.door.accept()
                threading.Thread(target=self.greet, args=[door], daemon=True).start()

    def greet(self, door: socket.socket) -> None:
        """Find out who it is, and serve a rank until it goes."""
        wire = answer(door, self.token)
        if wire is None:
            return
        # Of somebody who knows the token and still says what no rank says.
        nonsense = (OSError, ValueError, KeyError, TypeError)
        with contextlib.closing(wire), contextlib.suppress(*nonsense):
            hello, _ = wire.receive()
            with self.changed:  # one at a time: two may say the same rank
                if why := self.unfit(hello):
                    self.refused.append(why)
                elif not hello.get("worker"):
                    self.guests[hello["rank"]] = Guest(str(hello["host"]))
                self.changed.notify_all()
            wire.send({"refused": why} if why else {"size": self.size})
            if not why and hello.get("worker"):
                wire.door.settimeout(None)
                self.serve(wire, hello["rank"])
            elif not why:
                self.watch(wire, hello["rank"])

    def watch(self, wire: Wire, rank: int) -> None:
        """Serve a rank; where it goes without a word, it is lost."""
        wire.door.settimeout(SILENT_S)
        guest, why = self.guests[rank], "its connection to rank 0 ended"
        try:
            self.serve(wire, rank)
        except TimeoutError:
            why = f"rank 0 heard nothing of it for {SILENT_S:g} s"
        finally:
            if not guest.left:
                self.lose(rank, f"{why} (on {guest.host})")

    def unfit(self, hello: Header) -> str | None:
        """Why somebody cannot be a rank of this run, as a sentence for both sides."""
        rank, name = hello.get("rank"), hello.get("host")
        if not isinstance(rank, int) or not 0 < rank < self.size:
            return f"rank {rank} of {self.size}: the other ranks are 1 to {self.size - 1}"
        who = f"rank {rank} on {name}"
        if hello.get("size") != self.size:
            return f"{who} says --world-size {hello.get('size')}, rank 0 {self.size}"
        there = hello.get("same")
        known = there if isinstance(there, dict) else {}
        if why := differing(self.same, known, float(hello.get("clock", 0)) - time.time()):
            return f"{who} {why}"
        if not hello.get("worker") and rank in self.guests:
            return f"{who}: rank {rank} is there already, on {self.guests[rank].host}"
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
        assert self.run is not None
        number = current(self.run)
        if number is not None and not (self.run / failure(number, rank).name).exists():
            failure(number, rank).write(self.run, Failure(code=-1, reason=why, result=None))

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

    def serve(self, wire: Wire, rank: int) -> None:
        """Answer one rank, or its worker, until it leaves.

        Raises:
            OSError: its connection ended, or it is silent (`TimeoutError`).
        """
        assert self.run is not None
        shelf = Shelf(self.run, rank)
        while True:
            header, body = wire.receive()
            if header.get("op") == "bye":
                guest = self.guests[rank]
                guest.left = True
                if not over(self.run):
                    self.lose(rank, f"it was ended (on {guest.host})")
                wire.send({})
                return
            wire.send(*shelf.answer(header, body))
