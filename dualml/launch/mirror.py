"""A rank on a machine that does not see the run folder: its copy of what it needs of it, and the
way back of what it writes (`dualml.launch.hub` is rank 0's end)."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from dualml.backend import BackendInfo, backends
from dualml.errors import CommunicationError, UserError, plain
from dualml.files import write_bytes
from dualml.launch.remote import Remote
from dualml.launch.route import near
from dualml.launch.wire import TOKEN, Mismatch, Wire, call, reason
from dualml.messages import field_of
from dualml.store.sessions import Announcement, Failure, announcement, failure
from dualml.store.trial import JOB
from dualml.store.usage import usage_path
from dualml.version import __version__

#: For workers: where rank 0's machine is, and which of how many ranks this is.
HUB = "DUALML_HUB"
#: For workers: they keep what they write, ``--keep-local``.
KEEP = "DUALML_KEEP_LOCAL"
#: Between two attempts to reach rank 0, and between two signs of life.
AGAIN_S, ALIVE_S = 0.5, 1.0
#: Between two times that what a rank uses is sent to those who look on.
USAGE_S = 5.0
#: A rank may take so long to leave a group that rank 0 has left.
LEAVE_S = 5.0
#: Between two questions for an announcement, at least.
PAUSE_S = 0.02
#: How ranks on several machines find one another: not by a file that rank 0 would name.
RENDEZVOUS = ("tcp://", "env://")


def versions(infos: Iterable[BackendInfo]) -> dict[str, str]:
    """What must be the same on all machines of a run: versions of dualml and the frameworks."""
    found = {"dualml": __version__}
    for info in infos:
        with contextlib.suppress(PackageNotFoundError):
            found[info.framework] = version(info.framework).partition("+")[0]
    return found


@dataclass
class Seat:
    """Where rank 0's machine is, the token of the run, and which of how many ranks this is."""

    host: str
    port: int
    token: bytes
    rank: int
    size: int

    def enter(self, worker: bool, limit: float) -> Wire:
        """Introduce this rank, or its worker.

        Raises:
            CommunicationError: nobody answers.
            UserError: this rank does not fit that run; the text says what differs.
        """
        wire = call(self.host, self.port, self.token, limit)
        known = versions(backends().values())
        try:
            answer, _ = wire.ask({
                "rank": self.rank, "size": self.size, "host": socket.gethostname(),
                "worker": worker, "same": known, "clock": time.time(),
            })  # fmt: skip
        except (OSError, ValueError) as error:
            raise CommunicationError(f"rank 0 at {self} is gone: {reason(error)}") from None
        if "refused" in answer:
            wire.close()
            raise UserError(f"refused by rank 0 at {self}: {plain(str(answer['refused']))}")
        return wire

    def __str__(self) -> str:
        return f"tcp://{self.host}:{self.port}"

    def environ(self) -> dict[str, str]:
        """What a worker finds it by."""
        return {HUB: f"{self.host} {self.port} {self.rank} {self.size}"}


def seat_of_worker() -> Seat | None:
    """From the environment; None for a rank that sees the run folder."""
    if not (text := os.environ.get(HUB)):
        return None
    host, port, rank, size = text.split()
    return Seat(host, int(port), os.environ.get(TOKEN, "").encode(), int(rank), int(size))


@dataclass
class Mirror:
    """One rank's sessions, as `dualml.launch.adopted.follow` takes part in them.

    Args:
        run: the folder of this machine's copy.
        keep: leave what this rank writes there, and send nothing.
    """

    remote: Remote
    run: Path
    keep: bool = False
    said: float = 0.0
    usage_sent: float = 0.0
    places: list[Path] = field(default_factory=list)

    def awaited(self, number: int) -> Announcement:
        """What rank 0 announces next, when it does."""
        name = announcement(number).name
        content = None
        while content is None:
            answer, _ = self.remote.ask("wait", name)
            with self.remote.understood():
                there = field_of(answer, "there", bool)
            content = self.remote.read(name) if there else None
            time.sleep(PAUSE_S)
        (self.run / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(self.run / name, content)
        return announcement(number).read(self.run)

    def folders(self, announced: Announcement) -> list[Path]:
        """This machine's copies of what a rank needs to begin or to go on."""
        if not (self.run / "plan").is_dir():
            self.remote.fetch("plan")
        own_files = f"rank{self.remote.seat.rank}."
        for place in announced.places or ():
            self.remote.fetch(place, lambda name: name == JOB.name or name.startswith(own_files))
            rendezvous = JOB.read(self.run / place).rendezvous
            if not rendezvous.startswith(RENDEZVOUS):
                raise UserError(
                    f"rank 0 says rendezvous {plain(rendezvous)!r}; ranks on several machines meet "
                    "at tcp://HOST:PORT"
                )
        self.places = [self.run / place for place in announced.places or ()]
        return self.places

    def environ(self, announced: Announcement) -> dict[str, str]:
        """What the worker needs before it imports the framework."""
        info = backends().get(announced.backend)
        known = info.environ(announced.threads) if info is not None else {}
        kept = {KEEP: "1"} if self.keep else {}
        return {**known, **near(self.remote.seat.host), **self.remote.seat.environ(), **kept}

    def over(self, number: int) -> bool:
        """A sign of life, once a second; whether rank 0 has gone on without this rank."""
        if time.monotonic() - self.said < ALIVE_S:
            return False
        answer, _ = self.remote.ask("age", announcement(number + 1).name)
        with self.remote.understood():
            age = field_of(answer, "age", float) if answer.get("age") is not None else None
        self.said = time.monotonic()
        if not self.keep and self.said - self.usage_sent > USAGE_S:
            self.usage_sent = self.said
            for place in self.places:
                self.remote.deliver(place, usage_path(place, self.remote.seat.rank).name)
        return age is not None and age > LEAVE_S

    def failed(self, number: int, note: Failure) -> None:
        """Leave word of how this rank's part failed, and on which machine."""
        file, on = failure(number, self.remote.seat.rank), f" (on {socket.gethostname()})"
        if note.reason:
            note = note.model_copy(update={"reason": note.reason + on})
        if note.result and "reason" in note.result:
            told = {**note.result, "reason": f"{note.result['reason']}{on}"}
            note = note.model_copy(update={"result": told})
        file.write(self.run, note)
        self.remote.write(file.name, (self.run / file.name).read_bytes())

    def done(self, folders: list[Path]) -> None:
        """After a session: the log, and whatever was not sent yet."""
        for folder in () if self.keep else folders:
            self.remote.deliver(folder)

    def leave(self) -> None:
        with contextlib.suppress(CommunicationError):
            self.remote.ask("bye")
        self.remote.wire.close()


def reach(seat: Seat, seconds: float, waiting: Callable[[], None]) -> Wire:
    """Introduce this rank as soon as rank 0 is there.

    Args:
        waiting: called once if it is not.

    Raises:
        UserError: it was not there within ``seconds``, or does not want this rank.
    """
    end, told = time.monotonic() + seconds, False
    while True:
        try:
            return seat.enter(worker=False, limit=max(1.0, end - time.monotonic()))
        except CommunicationError as error:
            if isinstance(error, Mismatch) or time.monotonic() > end:
                raise UserError(f"{error}; start rank 0 there, or see --rendezvous") from None
        if not told:
            waiting()
            told = True
        time.sleep(AGAIN_S)
