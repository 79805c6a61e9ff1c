"""List the runs in a folder and those of jobs, with a summary of each."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import is_regular, resolve_links
from dualml.experiment.store.folder import is_locked
from dualml.experiment.store.summaries import HEAD, VERDICTS, ParitySummaryRecord
from dualml.experiment.store.trial import iter_rank_paths
from dualml.experiment.verdict import worst_verdict
from dualml.interface.serve.cache import Cache, file_stamp

#: Maximum depth of the folders to search, and maximum number of runs to show.
MAX_DEPTH, MAX_RUNS = 3, 500
#: Seconds that one request may spend reading runs; the rest is read by the next request.
READ_S = 1.0
UNREAD = "unread"
#: A run counts as running if written to within so many seconds, where its lock cannot be checked.
FRESH_S = 30.0


@dataclass(frozen=True)
class RunSummary:
    """Summary of one run in the list.

    Attributes:
        problem: why the run cannot be read; if set, the following fields are empty.
        state: ``running``, ``interrupted``, ``failed``, ``ok`` or `UNREAD`.
        ended, total: number of trials that have ended, and of all trials.
        verdict: the worst verdict; empty if there is none yet.
        remaining_s: estimated remaining seconds, from the trials so far; None if unknown.
    """

    id: str
    path: Path
    problem: str = ""
    name: str = ""
    created: str = ""
    state: str = ""
    ended: int = 0
    total: int = 0
    verdict: str = ""
    remaining_s: float | None = None
    backends: tuple[str, ...] = ()


def find_run_folders(root: Path, deep: int = MAX_DEPTH) -> Iterator[Path]:
    """Yield the run folders inside a folder, at most ``deep`` levels below it, or the folder itself
    if it is one; runs inside of runs, and hidden and unreadable folders, are skipped."""
    if is_regular(root / HEAD.name):
        yield root
        return
    try:
        inside = sorted(
            entry.path
            for entry in os.scandir(root)
            if not entry.name.startswith(".") and entry.is_dir()
        )
    except OSError:
        return
    for path in inside if deep else ():
        yield from find_run_folders(Path(path), deep - 1)


def runs_by_name(root: Path, more: Iterable[Path]) -> dict[str, Path]:
    """Return the runs in ``root``, and those among ``more`` that are not in it, as name in URLs →
    run folder; the name of the latter is their path. Only these are served."""
    there = {run_name(path, root): path for path in find_run_folders(root)}
    known = {resolve_links(path) for path in there.values()}
    for path in more:
        if is_regular(path / HEAD.name) and resolve_links(path) not in known:
            there[str(path)] = path
    return there


def run_name(path: Path, root: Path) -> str:
    """Return the name of a run: its path relative to the served folder, which may be a run itself
    and then gives its own name."""
    return path.name or str(path) if path == root else path.relative_to(root).as_posix()


def summarize_all(cache: Cache, paths: Mapping[str, Path]) -> list[RunSummary]:
    """Summarize the runs of a list; the most recently changed ones are read first, and come first.
    After `READ_S` seconds, those that are not cached get the state `UNREAD`."""
    stamps = {name: file_stamp(path / HEAD.name) or (0, 0, 0) for name, path in paths.items()}
    begin, found = time.monotonic(), list[RunSummary]()
    for name in sorted(paths, key=lambda name: stamps[name][2], reverse=True):
        path = paths[name]
        late = time.monotonic() - begin > READ_S and not cache.is_current(
            path / HEAD.name, HEAD.read
        )
        found.append(RunSummary(name, path, state=UNREAD) if late else summarize(cache, name, path))
    return found


def summarize(cache: Cache, name: str, path: Path) -> RunSummary:
    """Summarize the run in the folder ``path``: its state, its progress and its worst verdict; one
    that cannot be read has a ``problem`` instead. ``name`` becomes its id."""
    try:
        head = cache.read(path / HEAD.name, HEAD.read)
    except UserError as error:
        return RunSummary(name, path, problem=str(error))
    verdicts = None
    with contextlib.suppress(UserError):  # the run's own page reports it
        verdicts = cache.read(path / VERDICTS.name, VERDICTS.read_if_present)
    ended = [trial for trial in head.trials if trial.status != "interrupted"]
    total, left = len(head.trials), None
    if is_locked(path) or (
        is_locked(path) is None and recently_written(path) and len(ended) < total
    ):
        state = "running"
        if ended:
            left = sum(trial.wall_s or 0.0 for trial in ended) / len(ended) * (total - len(ended))
    elif len(ended) < total:
        state = "interrupted"
    else:
        state = "failed" if any(trial.status == "failed" for trial in ended) else "ok"
    return RunSummary(
        name,
        path,
        "",
        head.name,
        head.created,
        state,
        len(ended),
        total,
        "" if verdicts is None else headline_verdict(verdicts),
        left,
        tuple(dict.fromkeys(trial.backend for trial in head.trials)),
    )


def headline_verdict(verdicts: ParitySummaryRecord) -> str:
    """Return the worst verdict of a run, or an empty string if nothing was compared.

    Arms without a deterministic order are left out if there are others, as in the report's
    headline, because they are not expected to agree.
    """
    compared = [c for c in verdicts.comparisons if c.reason != "free_order"]
    every = (*(compared or verdicts.comparisons), *verdicts.serial)
    return worst_verdict(one.verdict for one in every)


def recently_written(path: Path) -> bool:
    """Return whether a rank of any trial of the run folder ``path`` wrote in the last `FRESH_S`
    seconds."""
    try:
        last = max((p.stat().st_mtime for p in iter_rank_paths(path)), default=0.0)
    except OSError:
        return False
    return time.time() - last < FRESH_S


def newest_first(runs: Iterable[RunSummary]) -> list[RunSummary]:
    """Sort runs by the time they were created, the newest first."""
    return sorted(runs, key=lambda run: (run.created, run.id), reverse=True)
