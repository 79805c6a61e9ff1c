"""Which runs go, and how: whole folders that hold nothing but a run, and none that is at work."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.errors import UserError
from dualml.export.base import EXPORT
from dualml.export.live import TENSORBOARD
from dualml.files import resolved
from dualml.housekeeping.listing import Row
from dualml.jobs.store import WAITING, Jobs
from dualml.store.costs import COST
from dualml.store.findings import FINDINGS
from dualml.store.folder import LOCK, in_use
from dualml.store.largest import LARGEST
from dualml.store.manifest import RUN
from dualml.store.sessions import SESSIONS
from dualml.store.trial import HOSTS
from dualml.store.verdicts import PARITY

#: What stands in a run folder; of some, more may follow: ``cost.torch-n2.json``.
WRITTEN = (
    *(RUN.name, PARITY.name, FINDINGS.name, COST.name, LARGEST.name, LOCK, SESSIONS, HOSTS),
    *("plan", "trials", "figures", "report.html", "report.md", TENSORBOARD, EXPORT),
)
COSTS = re.compile(r"cost\..+\.json")
#: Seconds of the units of an age.
UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True)
class Choice:
    """What goes, what stays although it was asked for, and why."""

    going: Sequence[Row]
    staying: Mapping[Path, str]


def age(text: str) -> float:
    """``30d`` → seconds.

    Raises:
        UserError: it is none.
    """
    match = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if match is None:
        raise UserError(f"--older takes hours, days or weeks, as 12h, 30d or 8w; received {text!r}")
    return int(match[1]) * UNITS[match[2]]


def named(rows: Sequence[Row], jobs: Jobs) -> Choice:
    """These runs.

    Raises:
        UserError: one of them cannot go, with the reason.
    """
    at_work = waiting(jobs)
    for row in rows:
        if why := obstacle(row, at_work):
            raise UserError(f"{row.found.path} stays: {why}")
    return Choice(rows, {})


def chosen(
    root: Path, rows: Sequence[Row], jobs: Jobs, *, older: float | None, failed: bool, keep: int
) -> Choice:
    """Of all runs in a folder, the newest first, those for which everything holds that is asked.

    Args:
        older: seconds since ``run.json`` was changed, at least.
        failed: only runs with a trial that failed.
        keep: so many of the newest stay.
    """
    going, staying = list[Row](), dict[Path, str]()
    at_work, inside, now = waiting(jobs), resolved(root), time.time()
    for row in rows[keep:]:
        path = row.found.path
        if failed and row.found.state != "failed":
            continue
        if older is not None and now - (path / RUN.name).stat().st_mtime < older:
            continue
        why = obstacle(row, at_work)
        if not resolved(path).is_relative_to(inside):
            why = f"it lies behind a link, outside of {root}"
        if why:
            staying[path] = why
        else:
            going.append(row)
    return Choice(going, staying)


def waiting(jobs: Jobs) -> dict[Path, int]:
    """Run folder → the job that goes on with it."""
    left = [number for number in jobs.numbers() if jobs.state(number).status in WAITING]
    return {resolved(Path(jobs.job(number).out)): number for number in left}


def obstacle(row: Row, at_work: Mapping[Path, int]) -> str:
    """Why a run folder is not removed; empty where nothing is against it."""
    run = row.found
    if run.problem:
        return f"it cannot be read: {run.problem}"
    if run.state == "running":
        return "it is at work"
    if number := at_work.get(resolved(run.path)):
        return f"job {number} is not over"
    if run.path.is_symlink():
        return "it is a link; name the folder that it points to"
    if not (run.path / "plan").is_dir():
        return "it has no plan: it is not a run folder"
    if others := sorted(strange(run.path)):
        return f"it holds {', '.join(others[:3])}, which no run writes; move that away first"
    return ""


def strange(folder: Path) -> Iterator[str]:
    """Names in a run folder that are not of it."""
    for path in folder.iterdir():
        if path.name not in WRITTEN and not COSTS.fullmatch(path.name):
            yield path.name


def remove(row: Row) -> None:
    """The folder with all that is in it; what a link in it points to stays.

    Raises:
        UserError: a run has begun in it since it was looked at.
    """
    path = row.found.path
    with in_use(path):
        shutil.rmtree(path)
