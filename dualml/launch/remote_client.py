"""A rank on a machine that does not see the run folder: it fetches what it needs, and uploads what
it writes (`dualml.launch.rank_server` is rank 0's end)."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from dualml.backend import backends
from dualml.common.bounded_io import get_field
from dualml.common.errors import CommunicationError, UserError, escape_unprintable
from dualml.common.files import MAX_TEXT_BYTES, read_bytes, write_bytes
from dualml.experiment.store.sessions import (
    Announcement,
    RankFailure,
    announcement_file,
    failure_file,
)
from dualml.experiment.store.trial import JOB
from dualml.experiment.store.usage import usage_path
from dualml.launch.remote import RemoteRunFolder
from dualml.launch.route import interface_variables

#: Variable that tells workers to keep their files locally (``--keep-local``).
KEEP_LOCAL_VARIABLE = "DUALML_KEEP_LOCAL"
#: Seconds between two signs of life.
ALIVE_S = 1.0
#: Seconds between two uploads of a rank's resource usage.
USAGE_S = 5.0
#: Seconds that a rank may take to leave a group that rank 0 has left.
LEAVE_S = 5.0
#: Seconds between two requests for an announcement, at least.
PAUSE_S = 0.02
#: Rendezvous that ranks on several machines may use: none through a file that rank 0 names.
RENDEZVOUS = ("tcp://", "env://")


@dataclass
class RemoteFolderClient:
    """A `SessionClient` over a connection to rank 0, with a local copy of the run folder.

    Args:
        remote: rank 0's run folder.
        run: folder of this machine's copy.
        keep_local: keep what this rank writes here, and upload nothing.
    """

    remote: RemoteRunFolder
    run: Path
    keep_local: bool = False
    last_contact: float = 0.0
    usage_sent: float = 0.0
    places: list[Path] = field(default_factory=list)

    def next_announcement(self, number: int) -> Announcement:
        """Wait without limit for rank 0's announcement of session ``number``, copy it here and
        return it."""
        name = announcement_file(number).name
        content = None
        while content is None:
            answer, _ = self.remote.ask("wait", name)
            with self.remote.checking_answer():
                there = get_field(answer, "there", bool)
            content = self.remote.read(name) if there else None
            time.sleep(PAUSE_S)
        (self.run / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(self.run / name, content)
        return announcement_file(number).read(self.run)

    def trial_folders(self, announced: Announcement) -> list[Path]:
        """Fetch the files that the rank needs to start or resume (the plan; each trial's job and
        this rank's own files), and return the local folders of the trials; `UserError` if rank 0
        names a rendezvous that is not one between machines."""
        if not (self.run / "plan").is_dir():
            self.remote.fetch("plan")
        own_files = f"rank{self.remote.seat.rank}."
        for place in announced.places or ():
            self.remote.fetch(place, lambda name: name == JOB.name or name.startswith(own_files))
            rendezvous = JOB.read(self.run / place).rendezvous
            if not rendezvous.startswith(RENDEZVOUS):
                raise UserError(
                    f"rank 0 says rendezvous {escape_unprintable(rendezvous)!r}; ranks on several "
                    "machines meet at tcp://HOST:PORT"
                )
        self.places = [self.run / place for place in announced.places or ()]
        return self.places

    def worker_environ(self, announced: Announcement) -> dict[str, str]:
        """Return the variables that the worker needs before it imports the framework: those of its
        backend, its network interface towards rank 0, and its credentials without the token."""
        info = backends().get(announced.backend)
        known = info.environ(announced.threads) if info is not None else {}
        kept = {KEEP_LOCAL_VARIABLE: "1"} if self.keep_local else {}
        return {
            **known,
            **interface_variables(self.remote.seat.host),
            **self.remote.seat.variables(),
            **kept,
        }

    def is_superseded(self, number: int) -> bool:
        """Return whether rank 0 went on without this rank, to the session after ``number``, more
        than `LEAVE_S` seconds ago.

        The request is also this rank's sign of life. It is sent at most once per second: a call in
        between returns False. Now and then the samples of resource usage are uploaded, too.
        """
        if time.monotonic() - self.last_contact < ALIVE_S:
            return False
        answer, _ = self.remote.ask("age", announcement_file(number + 1).name)
        with self.remote.checking_answer():
            age = get_field(answer, "age", float) if answer.get("age") is not None else None
        self.last_contact = time.monotonic()
        if not self.keep_local and self.last_contact - self.usage_sent > USAGE_S:
            self.usage_sent = self.last_contact
            for place in self.places:
                self.remote.upload(place, usage_path(place, self.remote.seat.rank).name)
        return age is not None and age > LEAVE_S

    def report_failure(self, number: int, note: RankFailure) -> None:
        """Report to rank 0 how this rank's part failed, and on which machine."""
        file, on = failure_file(number, self.remote.seat.rank), f" (on {socket.gethostname()})"
        if note.reason:
            note = note.model_copy(update={"reason": note.reason + on})
        if note.result and "reason" in note.result:
            told = {**note.result, "reason": f"{note.result['reason']}{on}"}
            note = note.model_copy(update={"result": told})
        file.write(self.run, note)
        self.remote.write(file.name, read_bytes(self.run / file.name, MAX_TEXT_BYTES))

    def finish_session(self, folders: list[Path]) -> None:
        """Upload this rank's files that were not sent yet, including the log; nothing with
        ``keep_local``."""
        for folder in () if self.keep_local else folders:
            self.remote.upload(folder)

    def leave(self) -> None:
        """Say goodbye to rank 0 and close the connection."""
        with contextlib.suppress(CommunicationError):
            self.remote.ask("bye")
        self.remote.wire.close()
