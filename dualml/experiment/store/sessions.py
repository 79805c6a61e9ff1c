"""``.sessions/``: messages between ranks that a launcher started, exchanged through the run
folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from dualml.common.errors import UserError
from dualml.experiment.store.jsonfile import JsonFile, Record
from dualml.experiment.store.paths import is_file_name
from dualml.experiment.store.trial import BOARD

SESSIONS = ".sessions"
#: Pattern of the names of unfinished files.
HALF = re.compile(r"^\..+\.(\d+|part)$")


#: Limits of what another machine sends: characters of a text, trials of an announcement, and
#: threads.
MAX_TEXT_CHARS, MAX_ANNOUNCED_TRIALS, MAX_THREADS = 4096, 10_000, 100_000
#: Fields of a rank's report about the end of its part.
STATUSES = ("ok", "failed", "unsupported")


def check_trial_folder(text: str) -> str:
    """Return ``text`` if it is the path of a trial's folder, ``trials/…`` with allowed names,
    relative to the run folder; raise `ValueError` if not."""
    first, *names = text.split("/", 8)
    if first != "trials" or not 0 < len(names) < 8 or not all(map(is_file_name, names)):
        raise ValueError("no folder of a trial")
    return text


Place = Annotated[str, Field(max_length=1000), AfterValidator(check_trial_folder)]
Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class Announcement(Record):
    """Announcement of rank 0: the folders of the next trials, the backend that runs them, and its
    threads per rank.

    ``places`` null ends the run; ``why`` is then the error, if there was one. ``start`` identifies
    the launcher's start (`ExternalLaunch`).
    """

    places: Annotated[list[Place], Field(min_length=1, max_length=MAX_ANNOUNCED_TRIALS)] | None
    backend: Annotated[str, Field(max_length=100)] = ""
    threads: Annotated[int, Field(ge=0, le=MAX_THREADS)] = 0
    start: Text = ""
    why: str = ""


class RankFailure(Record):
    """Failure of a rank's part of a session: its exit code, why the watchdog ended it, and its last
    result."""

    code: int
    reason: str | None
    result: dict[str, Any] | None


def announcement_file(number: int) -> JsonFile[Announcement]:
    """Return the path in the run folder, with the record type, of announcement ``number``, from 0;
    nothing is read or written yet."""
    return JsonFile(f"{SESSIONS}/{number}.json", Announcement)


def failure_file(number: int, rank: int) -> JsonFile[RankFailure]:
    """Return the file type of a rank's failure in session ``number``, which is read and written in
    the run folder."""
    return JsonFile(f"{SESSIONS}/{number}.rank{rank}.json", RankFailure)


def announce(run: Path, number: int, next_session: Announcement) -> None:
    """Write announcement ``number``, from 0, of the next trials to the run folder, for the other
    ranks to read; only rank 0 calls it."""
    (run / SESSIONS).mkdir(exist_ok=True)
    announcement_file(number).write(run, next_session)


def count_announcements(run: Path) -> int:
    """Return the number of consecutive announcements from number 0 on, that of the end included."""
    number = 0
    while (run / announcement_file(number).name).exists():
        number += 1
    return number


def announce_end(run: Path, start: str, why: str = "") -> None:
    """Announce to the other ranks, as the next announcement, that no more trials follow; ``start``
    identifies the launcher's start, ``why`` is the error that ended the run, empty without one."""
    announce(run, count_announcements(run), Announcement(places=None, start=start, why=why))


def current_session(run: Path) -> int | None:
    """Return the number of the last announcement, from 0, even if it announced the end; None before
    the first."""
    return count_announcements(run) - 1 if count_announcements(run) else None


def has_ended(run: Path) -> bool:
    """Return whether the end of the run was announced."""
    number = current_session(run)
    return number is not None and announcement_file(number).read(run).places is None


def clear_sessions(run: Path) -> None:
    """Remove from the run folder the messages of an earlier start, the trials' rendezvous folders,
    and temporary files whose writers were killed (`dualml.common.files.write_bytes`,
    `dualml.launch.file_service`)."""
    shutil.rmtree(run / SESSIONS, ignore_errors=True)
    for board in run.glob(f"trials/*/*/*/{BOARD}"):
        shutil.rmtree(board, ignore_errors=True)
    for folder in (run, *run.glob("trials/*/*/*")):
        for path in folder.glob(".*"):
            if HALF.match(path.name) and path.is_file():
                path.unlink(missing_ok=True)


def iter_failures(run: Path, number: int) -> Iterator[tuple[int, Path, RankFailure]]:
    """Yield the failures of session ``number``: rank, file and content. A file that cannot be read,
    as another machine may send it, yields a failure with code −1 that says so."""
    for path in sorted((run / SESSIONS).glob(f"{number}.rank*.json")):
        digits = path.stem.partition(".rank")[2]
        if not re.fullmatch("[0-9]{1,9}", digits):
            continue
        try:
            note = failure_file(number, int(digits)).read(run)
            if note.result is not None:
                check_result(note.result)
        except UserError as error:
            note = RankFailure(
                code=-1, reason=f"left a note that cannot be read: {error}", result=None
            )
        yield int(digits), path, note


def check_result(result: dict[str, Any]) -> None:
    """Raise `UserError` if the status, reason or kind in a rank's result has a wrong value or
    type."""
    status, reason = result.get("status", "ok"), result.get("reason")
    if status not in STATUSES or not isinstance(result.get("kind", ""), str):
        raise UserError(f"result.status must be one of {', '.join(STATUSES)}, result.kind a text")
    if not isinstance(reason, str) and (status != "ok" or reason is not None):
        raise UserError(f"result.reason is {type(reason).__name__}, not text")
