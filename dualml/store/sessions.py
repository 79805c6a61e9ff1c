"""``.sessions/``: what the ranks that a launcher has started tell one another in the run folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dualml.store.jsonfile import JsonFile, Record

SESSIONS = ".sessions"


class Announcement(Record):
    """Of rank 0: the folders of the trials that come next; null: nothing more comes."""

    places: list[str] | None


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


def announce(run: Path, number: int, trials: Sequence[Path] | None) -> None:
    """Rank 0 tells the others what comes next; None is the end."""
    (run / SESSIONS).mkdir(exist_ok=True)
    places = None if trials is None else [str(trial.relative_to(run)) for trial in trials]
    announcement(number).write(run, Announcement(places=places))


def announce_end(run: Path) -> None:
    """Tell the others that nothing more comes, however this process ends."""
    number = 0
    while (run / announcement(number).name).exists():
        number += 1
    announce(run, number, None)


def failures(run: Path, number: int) -> Iterator[tuple[int, Path, Failure]]:
    """Of a session: the rank, its file, and what it says."""
    for path in sorted((run / SESSIONS).glob(f"{number}.rank*.json")):
        rank = int(path.stem.partition(".rank")[2])
        yield rank, path, failure(number, rank).read(run)
