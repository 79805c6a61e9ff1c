"""The mediator between a student's ranks during one call: it passes on their inputs, answers their
collectives, and detects deadlocks at once."""

from __future__ import annotations

import contextlib
import heapq
import select
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from dualml.common.bounded_io import Header, get_int, get_seconds, get_text
from dualml.common.json_types import JsonMapping
from dualml.course.clock import CLOCK_OPTIONS, Clock
from dualml.course.collectives import EXCHANGE, compute, mismatch_text, read_ask
from dualml.course.exercise import Trouble
from dualml.course.frames import MAX_ARRAYS, Arrays, encode, plain_text
from dualml.course.member import Member
from dualml.course.tally import Tally

#: Seconds that the other ranks have to report after the first rank has failed.
PEERS_S = 1.5
#: Time limit in seconds for a rank to receive a message.
TAKE_S = 5.0
READ = 1 << 18
#: Limits of an answer of all ranks together: bytes, arrays, and characters of a name.
MAX_ANSWER_BYTES, MAX_KEY_CHARS = 32 << 20, 150
#: Largest number of collectives and exchanges of one call, far more than an exercise needs.
MAX_REQUESTS = 20_000


class NotConfined(Exception):
    """Error: a rank could not be isolated; the machine is at fault."""


class Mediator:
    """Mediator of one group of ranks.

    Args:
        doors: one socket per rank.
        ended: function that describes how a rank's process ended, once its socket is closed.
    """

    def __init__(self, doors: Sequence[socket.socket], ended: Callable[[int], str]) -> None:
        self.members = [Member(rank, door) for rank, door in enumerate(doors)]
        self.ended, self.order = ended, count()
        self.selector = selectors.DefaultSelector()
        for member in self.members:
            member.door.setblocking(False)
            self.selector.register(member.door, selectors.EVENT_READ, member)
        self.scheduled: list[tuple[float, int, Callable[[], None]]] = []
        self.tally, self.clock = Tally("", {}), Clock({}, len(doors))
        self.sequence = 0

    def run(
        self,
        number: int,
        header: JsonMapping,
        arrays: Sequence[Arrays],
        seconds: float,
        owner: socket.socket | None = None,
    ) -> list[Member]:
        """Make a call on all ranks, and return them when it has ended.

        Args:
            number: number of the call; −1 while the ranks load the student's file.
            header: header of the request; empty: send nothing.
            arrays: input arrays of each rank.
            seconds: time limit, cut to `PEERS_S` once a rank has failed. A rank that still computes
                at the limit gets a ``timeout``; one that waits for others, or is left after a
                failure, a ``CommunicationError``.
            owner: socket of the judge; once it is closed the call is abandoned
                (`InterruptedError`).

        Raises:
            NotConfined: a rank could not be isolated.
        """
        options: dict[str, Any] = dict(header.get("options", {}))
        self.tally = Tally(str(header.get("kind", "")), options)
        self.clock, self.sequence, self.scheduled = Clock(options, len(self.members)), 0, []
        for member, own in zip(self.members, arrays, strict=True):
            member.ask = member.arrays = member.trouble = None
            member.number, member.asks, member.is_behind = number, 0, False
            if header:
                shown = {k: v for k, v in options.items() if k not in CLOCK_OPTIONS}
                told = {**header, "options": shown, "silent": self.clock.runs}
                self.send(member, told, own)
        begin = time.monotonic()
        deadline, failed = begin + seconds, 0.0
        while not all(member.has_finished for member in self.members):
            now = time.monotonic()
            if not failed and any(member.trouble for member in self.members):
                failed = now
            if now >= (min(deadline, failed + PEERS_S) if failed else deadline):
                self.end_call(seconds, bool(failed))
                break
            self.poll(min(deadline - now, 0.2), owner)
            self.advance()
        return self.members

    def end_call(self, seconds: float, failed: bool) -> None:
        """Set the trouble of every rank that has not finished: waiting in vain for a collective, or
        for the others if the call has ``failed``; else a timeout of ``seconds``. Such a rank is
        behind, so that its group cannot make another call."""
        for member in self.members:
            if member.has_finished:
                continue
            member.is_behind = True
            if member.ask is not None or failed:
                what = member.ask.name if member.ask else "the others"
                text = f"rank {member.rank} waited for {what}"
                member.trouble = Trouble("CommunicationError", text)
            else:
                member.trouble = Trouble("timeout", f"{seconds:g} s")

    def poll(self, seconds: float, owner: socket.socket | None) -> None:
        """Wait at most ``seconds`` for messages of the ranks, handle those that have come, and run
        scheduled actions that are due; raise `InterruptedError` if ``owner`` is closed."""
        now = time.monotonic()
        if self.scheduled:
            seconds = min(seconds, max(0.0, self.scheduled[0][0] - now))
        for key, _ in self.selector.select(max(0.0, seconds)):
            member: Member = key.data
            try:
                piece = member.door.recv(READ)
                if not piece:
                    raise ConnectionError
                messages = member.stream.feed(piece)
            except BlockingIOError:
                continue
            except OSError:
                self.drop_member(member, self.ended(member.rank))
                continue
            except ValueError as error:
                self.drop_member(member, f"sent what is no message: {plain_text(error)}")
                continue
            for header, arrays in messages:
                self.handle_message(member, header, arrays)
        if owner is not None and not is_open(owner):
            raise InterruptedError
        while self.scheduled and self.scheduled[0][0] <= time.monotonic():
            heapq.heappop(self.scheduled)[2]()

    def schedule(self, due: float, action: Callable[[], None]) -> None:
        """Have `poll` call ``action`` once the time ``due`` of `time.monotonic` has come."""
        heapq.heappush(self.scheduled, (due, next(self.order), action))

    def drop_member(self, member: Member, why: str) -> None:
        """Give up a rank that has ended or sends invalid messages; its trouble is ``died`` unless
        it has a result or an error already."""
        if member.is_gone:
            return
        member.is_gone, member.ask = True, None
        self.selector.unregister(member.door)
        member.door.close()
        if not member.has_finished:
            member.trouble = Trouble("died", why)

    def handle_message(self, member: Member, header: Header, arrays: Arrays) -> None:
        """Handle one message of a rank; give up a rank whose message is invalid, and pass over one
        of an earlier call. Raise `NotConfined` if the rank could not be isolated."""
        try:
            if member.is_gone or get_int(header, "call", -1, 2**31) != member.number:
                return  # of a call that was given up
            if member.has_finished:
                member.arrays = None
                raise ValueError("a message after the answer")
            kind = get_text(header, "event", 20)
            if kind == "broken" and not member.is_confined:
                raise NotConfined(get_text(header, "why"))
            if kind == "confined" and not member.is_confined:
                member.is_confined = True
            elif kind == "ask":
                self.handle_ask(member, header, arrays)
            elif kind == "mark":
                self.tally.mark(member.rank)
            elif kind == "answer":
                self.check_answer(arrays)
                member.seconds = get_seconds(header, "seconds", 1e6, 0.0)
                member.arrays, member.ask = arrays, None
            elif kind == "trouble":
                name, line = get_text(header, "kind", 200), get_int(header, "line", 0, 10**7, 0)
                text = plain_text(header.get("message", ""))
                member.trouble, member.ask = Trouble(plain_text(name, 200), text, line=line), None
            else:
                raise ValueError(f"an event that is called {kind!r}")
        except (ValueError, TypeError, OverflowError, KeyError) as error:
            self.drop_member(member, f"sent what is no message: {plain_text(error)}")

    def check_answer(self, arrays: Arrays) -> None:
        """Raise `ValueError` for an answer that has too many or too large arrays, or too long
        names, to be sent to the judge with those of the others."""
        size = len(self.members)
        if len(arrays) > MAX_ARRAYS // size:
            raise ValueError(f"{len(arrays):,} arrays; at most {MAX_ARRAYS // size:,} are read")
        if (most := max(map(len, arrays), default=0)) > MAX_KEY_CHARS:
            raise ValueError(f"a name of {most} characters; at most {MAX_KEY_CHARS} are read")
        total = sum(a.nbytes for a in arrays.values())
        if total > MAX_ANSWER_BYTES // size:
            raise ValueError(f"{total:,} bytes; at most {MAX_ANSWER_BYTES // size:,} are read")

    def handle_ask(self, member: Member, header: Header, arrays: Arrays) -> None:
        """Note a rank's request for a collective or an exchange, and answer an invalid one with an
        error; raise `ValueError` for a second request at a time, or for too many."""
        member.asks += 1
        if member.ask is not None or member.asks > MAX_REQUESTS:
            raise ValueError("more questions than answers")
        try:
            ask = read_ask(header, arrays, member.rank, len(self.members), self.clock.runs)
            self.tally.allow(ask.name)
        except ValueError as error:
            self.refuse(member, "CommunicationError", str(error))
            return
        late = self.clock.lateness(member.rank)
        if late:
            self.schedule(time.monotonic() + late, lambda: setattr(member, "ask", ask))
        else:
            member.ask = ask

    def advance(self) -> None:
        """Answer requests that can be answered, and refuse those that never can be."""
        while self.answer_exchanges() or self.answer_collective():
            pass
        if self.scheduled or any(m.ask is None and not m.has_finished for m in self.members):
            return  # somebody computes, and may ask for what the others wait for
        waiting = [m for m in self.members if m.ask is not None]
        missing = [m.rank for m in self.members if m.ask is None]
        if not missing and len({m.ask.signature for m in waiting if m.ask}) > 1:
            listed = "; ".join(f"rank {m.rank}: {self.describe_wait(m)}" for m in waiting)
            text = f"the ranks disagree on collective number {self.sequence + 1}: {listed}"
            for member in waiting:
                self.refuse(member, "CommunicationError", text)
            return
        for member in waiting:
            assert member.ask is not None
            whom = self.describe_missing(member, missing)
            text = f"rank {member.rank} waited for {self.describe_wait(member)}; missing: {whom}"
            self.refuse(member, "CommunicationError", text)

    def describe_wait(self, member: Member) -> str:
        """Return what a rank waits for, for an error message."""
        assert member.ask is not None
        if member.ask.name != EXCHANGE:
            return member.ask.signature
        sends, receives = sorted(member.ask.sends), sorted(member.ask.receive)
        return f"exchange to {sends} from {receives}"

    def describe_missing(self, member: Member, missing: Sequence[int]) -> str:
        """Return for which ranks a rank waits, for an error message."""
        ask = member.ask
        assert ask is not None
        peers = sorted({*ask.sends, *ask.receive}) if ask.name == EXCHANGE else missing
        ranks = ", ".join(map(str, peers))
        return f"rank{'s' * (len(peers) != 1)} {ranks} of {len(self.members)}"

    def answer_collective(self) -> bool:
        """Answer a collective that all ranks have requested consistently; return whether there was
        one. While the clock runs, answers are sent after its seconds, and without results."""
        asks = [m.ask for m in self.members if m.ask is not None and m.ask.name != EXCHANGE]
        if len(asks) < len(self.members) or len({ask.signature for ask in asks}) > 1:
            return False
        self.sequence += 1
        for member, ask in zip(self.members, asks, strict=True):
            self.tally.note(member.rank, ask)
            member.ask = None
        seconds = self.clock.duration(asks[0]) if self.clock.runs else 0.0
        try:
            results = [{} for _ in asks] if self.clock.runs else compute(asks)
        except (ValueError, MemoryError, OverflowError) as error:
            for member in self.members:
                self.refuse(member, "CommunicationError", f"{asks[0].name}: {plain_text(error)}")
            return True

        def reply() -> None:
            """Send the results to all ranks that are still running."""
            for member, arrays in zip(self.members, results, strict=True):
                if not member.has_finished:
                    self.send(member, {"reply": member.number}, arrays)
            self.clock.finish(asks[0])

        if seconds:
            self.schedule(time.monotonic() + seconds, reply)
        else:
            reply()
        return True

    def answer_exchanges(self) -> bool:
        """Answer the exchanges whose messages all have a counterpart, with an error if a message is
        not of the expected size or dtype; return whether there were any."""
        ready = {m.rank: m.ask for m in self.members if m.ask and m.ask.name == EXCHANGE}
        while True:  # who waits for somebody that is not ready is not ready either
            blocked = [
                rank
                for rank, ask in ready.items()
                if any(p not in ready or rank not in ready[p].receive for p in ask.sends)
                or any(p not in ready or rank not in ready[p].sends for p in ask.receive)
            ]
            if not blocked:
                break
            for rank in blocked:
                del ready[rank]
        for rank, ask in ready.items():
            member, got = self.members[rank], dict[str, Any]()
            fault = ""
            for peer, expected in ask.receive.items():
                x = ready[peer].sends[rank]
                fault = fault or mismatch_text(rank, peer, x, expected)
                got[str(peer)] = x if fault else x.reshape(expected[1])
            self.tally.note(rank, ask)
            if fault:
                self.refuse(member, "ValueError", fault)
            else:
                member.ask = None
                self.send(member, {"reply": member.number}, got)
        return bool(ready)

    def refuse(self, member: Member, kind: str, text: str) -> None:
        """Answer a rank's request with an error of this kind, which the student's call raises."""
        member.ask = None
        header = {"reply": member.number, "error": kind, "message": plain_text(text)}
        self.send(member, header, {})

    def send(self, member: Member, header: JsonMapping, arrays: Arrays) -> None:
        """Send to a rank; give it up if it has ended, does not read, or the message is too
        large."""
        if member.is_gone:
            return
        try:
            whole = b"".join(encode(header, arrays))
            member.door.settimeout(TAKE_S)
            member.door.sendall(whole)
        except OSError:
            self.drop_member(member, self.ended(member.rank))
            return
        except ValueError as error:  # more than fits into a message
            self.drop_member(member, f"would receive {plain_text(error)}")
            return
        member.door.setblocking(False)


def is_open(door: socket.socket) -> bool:
    """Return whether the other end of a socket is open, without consuming data."""
    if not select.select([door], [], [], 0)[0]:
        return True
    with contextlib.suppress(OSError):
        return bool(door.recv(1, socket.MSG_PEEK))
    return False
