"""``.sessions/``: what the ranks that a launcher has started tell one another in the run folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from dualml.errors import UserError
from dualml.store.jsonfile import JsonFile, Record
from dualml.store.paths import is_name
from dualml.store.trial import BOARD

SESSIONS = ".sessions"
#: Names of files that were never finished.
HALF = re.compile(r"^\..+\.(\d+|part)$")


#: Characters of a text that another machine sends; trials of one announcement; threads.
LONGEST_TEXT, MOST_PLACES, MOST_THREADS = 4096, 10_000, 100_000
#: What a rank says of how its part ended.
STATUSES = ("ok", "failed", "unsupported")


def check_place(text: str) -> str:
    """Return the folder of a trial; raises `ValueError` for what is none."""
    first, *names = text.split("/", 8)
    if first != "trials" or not 0 < len(names) < 8 or not all(map(is_name, names)):
        raise ValueError("no folder of a trial")
    return text


Place = Annotated[str, Field(max_length=1000), AfterValidator(check_place)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]


class Announcement(Record):
    """Of rank 0: the folders of the trials that come next, the backend that runs them, and its
    threads on each rank; null: nothing more comes, and ``why`` says what went wrong, if anything
    did. ``start`` is the launcher's (`Adopted`)."""

    places: Annotated[list[Place], Field(min_length=1, max_length=MOST_PLACES)] | None
    backend: Annotated[str, Field(max_length=100)] = ""
    threads: Annotated[int, Field(ge=0, le=MOST_THREADS)] = 0
    start: Text = ""
    why: str = ""


class Failure(Record):
    """How a rank's part of a session failed: its exit code, why the watchdog ended it, and what it
    sent last."""

    code: int
    reason: str | None
    result: dict[str, Any] | None


def announcement(number: int) -> JsonFile[Announcement]:
    return JsonFile(f"{SESSIONS}/{number}.json", Announcement)


def failure(number: int, rank: int) -> JsonFile[Failure]:
    return JsonFile(f"{SESSIONS}/{number}.rank{rank}.json", Failure)


def announce(run: Path, number: int, next_session: Announcement) -> None:
    """Rank 0 tells the others what comes next."""
    (run / SESSIONS).mkdir(exist_ok=True)
    announcement(number).write(run, next_session)


def announced(run: Path) -> int:
    """How many announcements there are."""
    number = 0
    while (run / announcement(number).name).exists():
        number += 1
    return number


def announce_end(run: Path, start: str, why: str = "") -> None:
    """Tell the others that nothing more comes, however this process ends."""
    announce(run, announced(run), Announcement(places=None, start=start, why=why))


def current(run: Path) -> int | None:
    """The session at work; None before the first."""
    return announced(run) - 1 if announced(run) else None


def over(run: Path) -> bool:
    """Whether the end was announced."""
    number = current(run)
    return number is not None and announcement(number).read(run).places is None


def forget(run: Path) -> None:
    """Remove what the ranks of an earlier start told one another, and the files that they were
    killed over (`dualml.files.write_bytes`, `dualml.launch.shelf`)."""
    shutil.rmtree(run / SESSIONS, ignore_errors=True)
    for board in run.glob(f"trials/*/*/*/{BOARD}"):
        shutil.rmtree(board, ignore_errors=True)
    for folder in (run, *run.glob("trials/*/*/*")):
        for path in folder.glob(".*"):
            if HALF.match(path.name) and path.is_file():
                path.unlink(missing_ok=True)


def failures(run: Path, number: int) -> Iterator[tuple[int, Path, Failure]]:
    """Of a session: the rank, its file, and what it says; that of a rank on another machine may be
    damaged."""
    for path in sorted((run / SESSIONS).glob(f"{number}.rank*.json")):
        digits = path.stem.partition(".rank")[2]
        if not re.fullmatch("[0-9]{1,9}", digits):
            continue
        try:
            note = failure(number, int(digits)).read(run)
            if note.result is not None:
                check_result(note.result)
        except UserError as error:
            note = Failure(code=-1, reason=f"left a note that cannot be read: {error}", result=None)
        yield int(digits), path, note


def check_result(result: dict[str, Any]) -> None:
    """Raises `UserError` where the fields that tell of a failure are of another type."""
    status, reason = result.get("status", "ok"), result.get("reason")
    if status not in STATUSES or not isinstance(result.get("kind", ""), str):
        raise UserError(f"result.status must be one of {', '.join(STATUSES)}, result.kind a text")
    if not isinstance(reason, str) and (status != "ok" or reason is not None):
        raise UserError(f"result.reason is {type(reason).__name__}, not text")
