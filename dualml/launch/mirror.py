"""A rank on a machine that does not see the run folder: its copy of what it needs of it, and the
way back of what it writes (`dualml.launch.hub` is rank 0's end)."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from dualml.backend import backends
from dualml.errors import CommunicationError, UserError, plain
from dualml.files import MOST_TEXT, read_bytes, write_bytes
from dualml.launch.remote import Remote
from dualml.launch.route import near
from dualml.messages import field_of
from dualml.store.sessions import Announcement, Failure, announcement, failure
from dualml.store.trial import JOB
from dualml.store.usage import usage_path

#: For workers: they keep what they write, ``--keep-local``.
KEEP = "DUALML_KEEP_LOCAL"
#: Between two signs of life.
ALIVE_S = 1.0
#: Between two times that what a rank uses is sent to those who look on.
USAGE_S = 5.0
#: A rank may take so long to leave a group that rank 0 has left.
LEAVE_S = 5.0
#: Between two questions for an announcement, at least.
PAUSE_S = 0.02
#: How ranks on several machines find one another: not by a file that rank 0 would name.
RENDEZVOUS = ("tcp://", "env://")


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
        self.remote.write(file.name, read_bytes(self.run / file.name, MOST_TEXT))

    def done(self, folders: list[Path]) -> None:
        """After a session: the log, and whatever was not sent yet."""
        for folder in () if self.keep else folders:
            self.remote.deliver(folder)

    def leave(self) -> None:
        with contextlib.suppress(CommunicationError):
            self.remote.ask("bye")
        self.remote.wire.close()
