"""Select and remove runs: only whole folders that contain nothing but a run, and no running
ones."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import resolve_links
from dualml.experiment.store.costs import COST
from dualml.experiment.store.findings import FINDINGS
from dualml.experiment.store.folder import LOCK, lock_run_folder
from dualml.experiment.store.largest import LARGEST
from dualml.experiment.store.manifest import RUN
from dualml.experiment.store.sessions import SESSIONS
from dualml.experiment.store.trial import HOSTS
from dualml.experiment.store.verdicts import PARITY
from dualml.interface.housekeeping.listing import RunRow
from dualml.parity.search_log import SEARCH_LOG
from dualml.report.export.base import EXPORT
from dualml.report.export.live import TENSORBOARD
from dualml.runner.jobs.store import WAITING, Jobs

#: Names that a run folder may contain; `COSTS` matches further ones: ``cost.torch-n2.json``.
RUN_FOLDER_NAMES = (
    *(RUN.name, PARITY.name, FINDINGS.name, COST.name, LARGEST.name, LOCK, SESSIONS, HOSTS),
    *(SEARCH_LOG, "plan", "trials", "figures", "report.html", "report.md", TENSORBOARD, EXPORT),
)
COSTS = re.compile(r"cost\..+\.json")
#: Unit of an age → seconds.
UNITS = {"h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True)
class RemovalPlan:
    """Runs to remove, and runs that match but are kept: folder → reason."""

    to_remove: Sequence[RunRow]
    kept: Mapping[Path, str]


def parse_age(text: str) -> float:
    """Parse an age such as ``30d`` into seconds.

    Raises:
        UserError: the text is not an age.
    """
    match = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if match is None:
        raise UserError(f"--older takes hours, days or weeks, as 12h, 30d or 8w; received {text!r}")
    return int(match[1]) * UNITS[match[2]]


def plan_named(rows: Sequence[RunRow], jobs: Jobs) -> RemovalPlan:
    """Plan to remove all of these runs; nothing is removed yet.

    Raises:
        UserError: one of them cannot be removed; the text says why.
    """
    at_work = pending_jobs(jobs)
    for row in rows:
        if why := removal_obstacle(row, at_work):
            raise UserError(f"{row.summary.path} stays: {why}")
    return RemovalPlan(rows, {})


def plan_filtered(
    root: Path, rows: Sequence[RunRow], jobs: Jobs, *, older: float | None, failed: bool, keep: int
) -> RemovalPlan:
    """Plan to remove the runs in a folder that match all conditions; nothing is removed yet.

    Args:
        root: the folder.
        rows: its runs, the newest first.
        jobs: all jobs; runs that a job still needs are kept.
        older: minimum seconds since ``run.json`` was changed; None for any age.
        failed: match only runs of which all trials have ended and one has failed.
        keep: number of newest runs that are kept, whether or not they match; they are not listed as
            kept.
    """
    going, staying = list[RunRow](), dict[Path, str]()
    at_work, inside, now = pending_jobs(jobs), resolve_links(root), time.time()
    for row in rows[keep:]:
        path = row.summary.path
        if failed and row.summary.state != "failed":
            continue
        if older is not None and now - (path / RUN.name).stat().st_mtime < older:
            continue
        why = removal_obstacle(row, at_work)
        if not resolve_links(path).is_relative_to(inside):
            why = f"it lies behind a link, outside of {root}"
        if why:
            staying[path] = why
        else:
            going.append(row)
    return RemovalPlan(going, staying)


def pending_jobs(jobs: Jobs) -> dict[Path, int]:
    """Return run folder, with links resolved, → number of the queued or running job that writes
    into it."""
    left = [number for number in jobs.numbers() if jobs.state(number).status in WAITING]
    return {resolve_links(Path(jobs.job(number).out)): number for number in left}


def removal_obstacle(row: RunRow, at_work: Mapping[Path, int]) -> str:
    """Return why a run folder must not be removed; empty if it may be. ``at_work`` is the result of
    `pending_jobs`."""
    run = row.summary
    if run.problem:
        return f"it cannot be read: {run.problem}"
    if run.state == "running":
        return "it is at work"
    if number := at_work.get(resolve_links(run.path)):
        return f"job {number} is not over"
    if run.path.is_symlink():
        return "it is a link; name the folder that it points to"
    if not (run.path / "plan").is_dir():
        return "it has no plan: it is not a run folder"
    if others := sorted(foreign_names(run.path)):
        return f"it holds {', '.join(others[:3])}, which no run writes; move that away first"
    return ""


def foreign_names(folder: Path) -> Iterator[str]:
    """Yield names directly in a run folder that do not belong to a run."""
    for path in folder.iterdir():
        if path.name not in RUN_FOLDER_NAMES and not COSTS.fullmatch(path.name):
            yield path.name


def remove_run(row: RunRow) -> None:
    """Remove a run folder with everything in it; targets of links are kept.

    Raises:
        UserError: a run has started in it in the meantime.
    """
    path = row.summary.path
    with lock_run_folder(path):
        shutil.rmtree(path)
