"""List the runs in a folder and those of jobs, for `dualml runs`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import resolve_links
from dualml.common.json_types import JsonObject
from dualml.common.words import Messages
from dualml.common.words.numbers import nbytes
from dualml.experiment.store.manifest import check_run
from dualml.interface.serve.cache import Cache
from dualml.interface.serve.summaries import RunSummary, newest_first, runs_by_name, summarize
from dualml.interface.serve.tables import format_created, state_cell, verdict_cell
from dualml.report.blocks import Cell, Column, Table
from dualml.runner.jobs.store import Jobs

COLUMNS = ("run", "experiment", "created", "state", "backends", "verdict", "size")


@dataclass(frozen=True)
class RunRow:
    """A run and its size on disk.

    Attributes:
        size: total bytes of its files.
    """

    summary: RunSummary
    size: int

    def describe(self) -> JsonObject:
        """Return the row as a JSON-serializable dict: path, experiment, time, state, backends,
        numbers of trials, worst verdict, and size in bytes; ``problem`` says why a run cannot be
        read."""
        run = self.summary
        return {
            "path": str(run.path),
            "experiment": run.name,
            "created": run.created,
            "state": "unreadable" if run.problem else run.state,
            "problem": run.problem or None,
            "backends": list(run.backends),
            "ended": run.ended,
            "trials": run.total,
            "verdict": run.verdict or None,
            "bytes": self.size,
        }


def list_runs(root: Path, jobs: Jobs | None) -> list[RunRow]:
    """List all runs, the newest first.

    Args:
        root: a folder that contains runs, at most 3 levels below it, or a run.
        jobs: jobs whose runs are listed too; None lists the runs of the folder only.
    """
    outs = [] if jobs is None else [Path(jobs.job(number).out) for number in jobs.numbers()]
    cache = Cache()
    runs = newest_first(
        summarize(cache, name, path) for name, path in runs_by_name(root, outs).items()
    )
    return [RunRow(run, folder_size(run.path)) for run in runs]


def rows_of_folders(folders: Sequence[Path]) -> list[RunRow]:
    """Return the rows of these run folders, one for several paths of the same folder.

    Raises:
        UserError: one of them is not a run folder.
    """
    for folder in folders:
        check_run(folder)
    unique = {resolve_links(folder): folder for folder in folders}
    return [
        RunRow(summarize(Cache(), str(path), path), folder_size(path)) for path in unique.values()
    ]


def latest_run(root: Path) -> Path:
    """Return the folder of the run in ``root``, or ``root`` itself, that was created last.

    Raises:
        UserError: there is no run.
    """
    found = list_runs(root, None)
    if not found:
        raise UserError(f"{root} holds no run; name one, or make one: dualml run lab1")
    return found[0].summary.path


def folder_size(folder: Path) -> int:
    """Return the total bytes of the files in a folder; targets of links are not counted."""
    total = 0
    for entry in walk_files(folder):
        with contextlib.suppress(FileNotFoundError):  # a running run replaces its files
            total += entry.stat(follow_symlinks=False).st_size
    return total


def walk_files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield all files and links in a folder, at any depth; links are not followed, and unreadable
    folders are skipped."""
    left: list[str | Path] = [folder]
    while left:
        try:
            inside = list(os.scandir(left.pop()))
        except OSError:
            continue
        for entry in inside:
            if entry.is_dir(follow_symlinks=False):
                left.append(entry.path)
            else:
                yield entry


def runs_table(found: Sequence[RunRow], words: Messages) -> Table:
    """Make the table of runs, one row per run, in the given order."""
    columns = [
        Column(
            name,
            words(f"runs.{name}"),
            show="number" if name == "size" else "text",
            optional=name in ("created", "size", "backends"),
        )
        for name in COLUMNS
    ]
    return Table("runs", "", columns, [row_cells(row, words) for row in found])


def row_cells(row: RunRow, words: Messages) -> list[Cell | str]:
    """Return the cells of one run; of one that cannot be read its name, the problem and its
    size."""
    run = row.summary
    if run.problem:
        now = Cell(words("status.unreadable"), "bad", run.problem)
        return [run.path.name, "", "", now, "", "", nbytes(row.size)]
    return [
        run.id,
        run.name,
        format_created(run.created),
        state_cell(run.state, words),
        ", ".join(run.backends),
        verdict_cell(run.verdict, words),
        nbytes(row.size),
    ]
