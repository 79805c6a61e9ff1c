"""The table of the ranks of one trial: machine, state, step and last activity."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dualml.common.words import Messages, numbers
from dualml.experiment.store.records import records_path
from dualml.experiment.store.trial import trial_folder
from dualml.interface.serve import tables
from dualml.interface.serve.cache import file_stamp
from dualml.interface.serve.run import RunView, RunWatcher, TrialView, find_log
from dualml.report.blocks import Block, Cell, Prose
from dualml.report.columns import Columns, make_table

#: Pattern by which ``run.json`` names the rank that failed.
FAULT = re.compile(r"rank (\d+)\b")


def ranks_table(
    watch: RunWatcher,
    seen: RunView,
    wanted: str,
    machines: Mapping[int, str],
    logs: Mapping[str, Path],
    words: Messages,
) -> tuple[str, list[Block]]:
    """Return the key of the trial that is shown, and a table with one row per rank.

    Args:
        wanted: a key as of `tables.trial_key`; for any other, the running trial or the first.
        machines: rank → its machine, where known.
        logs: name → log file.
    """
    if not seen.trials:
        return "", [Prose(words("serve.no_trial"))]
    trial = next((t for t in seen.trials if tables.trial_key(t) == wanted), None)
    trial = trial or next((t for t in seen.trials if t.state == "running"), seen.trials[0])
    key, named = tables.trial_key(trial), {path: name for name, path in logs.items()}
    every = range(trial.world_size)
    paths = [find_log(seen.summary.path, seen, trial, rank, watch.cache) for rank in every]

    def rank_cell(rank: int) -> Cell:
        link = ""
        if (path := paths[rank]) in named:
            link = tables.page_url(run=seen.summary.id, trial=key, log=named[path]) + "#log"
        return Cell(str(rank), href=link)

    read: Columns[int] = {
        "rank": rank_cell,
        "machine": lambda rank: machines.get(rank, numbers.NO_VALUE),
        "state": lambda rank: tables.state_cell(rank_state(trial, rank), words),
        "step:": lambda rank: rank_step(watch, seen, trial, rank),
        "sign": lambda rank: last_activity(seen, trial, rank, paths[rank]),
    }
    caption = words("serve.part.ranks")
    return key, [make_table(words, "ranks", every, read, caption, "serve.column.{}")]


def rank_state(trial: TrialView, rank: int) -> str:
    """Return the state of a rank: that of its trial, but ``ended`` if the trial failed and its
    reason names another rank."""
    fault = FAULT.match(trial.record.reason or "")
    if trial.state == "failed" and fault and int(fault[1]) != rank:
        return "ended"
    return trial.state


def rank_step(watch: RunWatcher, seen: RunView, trial: TrialView, rank: int) -> int | None:
    """Return the last update that the rank recorded, or None; often only rank 0 records."""
    if rank == 0:
        return trial.step
    place = trial_folder(seen.summary.path, trial.record.key)
    return watch.poll_records(place, rank).step


def last_activity(seen: RunView, trial: TrialView, rank: int, log: Path | None) -> str:
    """Return the local time when the rank last wrote a record or to its log, as text; a dash if it
    has not."""
    place = trial_folder(seen.summary.path, trial.record.key)
    stamps = [file_stamp(path) for path in (records_path(place, rank), log) if path is not None]
    last = max((s[2] for s in stamps if s is not None), default=None)
    return numbers.NO_VALUE if last is None else tables.format_time(last / 1e9)
