"""The table of the ranks of one trial: machine, state, step and last activity."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dualml.report.blocks import Block, Cell, Cells, Column, Prose, Table
from dualml.serve import tables
from dualml.serve.cache import stamp
from dualml.serve.run import Seen, Shown, Watch, log_of
from dualml.store.records import records_path
from dualml.store.trial import trial_folder
from dualml.words import Words, numbers

#: Pattern by which ``run.json`` names the rank that failed.
FAULT = re.compile(r"rank (\d+)\b")


def ranks(
    watch: Watch,
    seen: Seen,
    wanted: str,
    machines: Mapping[int, str],
    logs: Mapping[str, Path],
    kept: Mapping[str, Sequence[str]],
    words: Words,
) -> tuple[str, list[Block]]:
    """Return the key of the trial that is shown, and a table with one row per rank.

    Args:
        wanted: a key as of `tables.trial_key`; for any other, the running trial or the first.
        machines: rank → its machine, where known.
        logs: name → log file.
        kept: other parameters of the URL.
    """
    if not seen.trials:
        return "", [Prose(words("serve.no_trial"))]
    trial = next((t for t in seen.trials if tables.key(t) == wanted), None)
    trial = trial or next((t for t in seen.trials if t.state == "running"), seen.trials[0])
    named = {path: name for name, path in logs.items()}
    names = ("rank", "machine", "state", "step", "sign")
    heads = [Column(name, words(f"serve.column.{name}")) for name in names]
    heads[3] = replace(heads[3], show="number")
    rows: list[Cells] = []
    for rank in range(trial.world_size):
        log = log_of(seen.found.path, seen, trial, rank, watch.cache)
        link = ""
        if log in named:
            link = (
                tables.address(run=seen.found.id, trial=tables.key(trial), log=named[log]) + "#log"
            )
        rows.append([Cell(str(rank), href=link), machines.get(rank, numbers.NONE),
                     tables.state(state(trial, rank), words),
                     numbers.quantity(step(watch, seen, trial, rank)),
                     sign(seen, trial, rank, log)])  # fmt: skip
    return tables.key(trial), [Table("ranks", words("serve.part.ranks"), heads, rows)]


def state(trial: Shown, rank: int) -> str:
    """Return the state of a rank: that of its trial, but ``ended`` for ranks that did not fail."""
    fault = FAULT.match(trial.record.reason or "")
    if trial.state == "failed" and fault and int(fault[1]) != rank:
        return "ended"
    return trial.state


def step(watch: Watch, seen: Seen, trial: Shown, rank: int) -> int | None:
    """Return the last update that the rank recorded, or None; often only rank 0 records."""
    if rank == 0:
        return trial.step
    place = trial_folder(seen.found.path, trial.record.key)
    return watch.records(place, rank).step


def sign(seen: Seen, trial: Shown, rank: int, log: Path | None) -> str:
    """Return the time when the rank last wrote a record or to its log."""
    place = trial_folder(seen.found.path, trial.record.key)
    stamps = [stamp(path) for path in (records_path(place, rank), log) if path is not None]
    last = max((s[2] for s in stamps if s is not None), default=None)
    return numbers.NONE if last is None else tables.moment(last / 1e9)
