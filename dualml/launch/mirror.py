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
from typing import Any

from dualml.backend import BackendInfo, backends
from dualml.errors import CommunicationError, UserError
from dualml.files import write_bytes
from dualml.launch.route import near
from dualml.launch.wire import PIECE, TOKEN, Header, Wire, call
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
            wire.close()
            raise CommunicationError(f"rank 0 at {self} is gone: {error}") from None
        if "refused" in answer:
            wire.close()
            raise UserError(f"refused by rank 0 at {self}: {answer['refused']}")
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


class Remote:
    """What stands in rank 0's run folder, over a connection to it.

    Args:
        run: this machine's copy.
    """

    def __init__(self, seat: Seat, wire: Wire, run: Path) -> None:
        self.seat, self.wire, self.run = seat, wire, run
        self.sent = dict[Path, tuple[int, int]]()

    def ask(self, op: str, path: str = "", body: bytes = b"", **more: Any) -> tuple[Header, bytes]:
        """Raises `CommunicationError` where rank 0 is gone, or cannot do it."""
        header = {"op": op, "path": path, "rank": self.seat.rank, **more}
        try:
            answer, content = self.wire.ask(header, body)
        except (OSError, ValueError) as error:
            raise CommunicationError(f"rank 0 at {self.seat} is gone: {error}") from None
        if "error" in answer:
            raise CommunicationError(str(answer["error"]))
        return answer, content

    def read(self, path: str) -> bytes | None:
        """A file; None where there is none."""
        parts, at = list[bytes](), 0
        while True:
            answer, piece = self.ask("get", path, at=at)
            if not answer["there"]:
                return None
            parts.append(piece)
            at += len(piece)
            if len(piece) < PIECE:
                return b"".join(parts)

    def write(self, path: str, content: bytes) -> None:
        """A file, whole or not at all."""
        for at in range(0, max(1, len(content)), PIECE):
            piece = content[at : at + PIECE]
            self.ask("put", path, piece, at=at, last=at + len(piece) >= len(content))

    def fetch(self, folder: str, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Copy the files of a folder that are wanted."""
        (self.run / folder).mkdir(parents=True, exist_ok=True)
        for name in self.ask("list", folder)[0]["files"]:
            if wanted(name) and (content := self.read(f"{folder}/{name}")) is not None:
                write_bytes(self.run / folder / name, content)

    def deliver(self, folder: Path, which: str = "*") -> None:
        """Send what this rank has written into the folder of a trial since the last time.

        Args:
            which: a pattern that the names of the files match.
        """
        own_files = sorted(folder.glob(f"rank{self.seat.rank}.*"))
        for path in (path for path in own_files if path.match(which)):
            status = path.stat()
            if self.sent.get(path) != (stamp := (status.st_mtime_ns, status.st_size)):
                self.write(str(path.relative_to(self.run)), path.read_bytes())
                self.sent[path] = stamp
        for path in [path for path in self.sent if not path.exists()]:
            self.ask("remove", str(path.relative_to(self.run)))
            del self.sent[path]


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
        while not self.remote.ask("wait", name)[0]["there"]:
            pass
        content = self.remote.read(name)
        assert content is not None
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
        self.said = time.monotonic()
        if not self.keep and self.said - self.usage_sent > USAGE_S:
            self.usage_sent = self.said
            for place in self.places:
                self.remote.deliver(place, usage_path(place, self.remote.seat.rank).name)
        return answer["age"] is not None and answer["age"] > LEAVE_S

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
            if TOKEN in str(error) or time.monotonic() > end:
                raise UserError(f"{error}; start rank 0 there, or see --rendezvous") from None
        if not told:
            waiting()
            told = True
        time.sleep(AGAIN_S)
