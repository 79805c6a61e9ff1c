"""A run as exported tables: those of `dualml.experiment.store.table`, and measured collectives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dualml.experiment.store.run import RunData
from dualml.experiment.store.table import (
    Table,
    append_rows,
    empty_table,
    records,
    trial_key,
    trials,
    verdicts,
)
from dualml.planning.cost.bandwidth import bandwidths
from dualml.report.export.base import ExportJob

COLLECTIVE = (
    *("arm", "backend", "seed", "ranks", "strategy", "bytes", "seconds", "low", "high", "repeats"),
    *("algbw_gb_per_s", "busbw_gb_per_s"),
)


def tables(job: ExportJob) -> dict[str, Table]:
    """Return table name → columns, without empty tables. Trials with damaged records appear in
    ``trials`` only."""
    run = replace(job.run, trials=tuple(job.trials))
    every = {
        "records": records(run),
        "trials": trials(job.run),
        "verdicts": verdicts(job.run),
        "collectives": collectives(run),
    }
    return {name: table for name, table in every.items() if any(table.values())}


def collectives(run: RunData) -> Table:
    """Return a row per strategy and size that a trial timed, in bytes and seconds.

    ``algbw_gb_per_s`` and ``busbw_gb_per_s`` are those of nccl-tests
    (`dualml.planning.cost.bandwidth`), in 10⁹ bytes per second; None if the collective is no
    all-reduce.
    """
    table = empty_table(COLLECTIVE)
    for trial in run.trials:
        whose = {**trial_key(trial), "ranks": trial.world_size}
        for row in (trial.collectives or {}).get("rows", ()):
            append_rows(table, [{**whose, **row, **_rates(trial.world_size, row)}])
    return table


def _rates(n: int, row: dict[str, Any]) -> dict[str, float]:
    """Return algorithm and bus bandwidth of a timed collective in 10⁹ bytes per second, empty if it
    is no all-reduce."""
    rates = bandwidths(row["strategy"], n, row["bytes"], row["seconds"])
    return {} if rates is None else {f"{k}_gb_per_s": v / 1e9 for k, v in rates._asdict().items()}
