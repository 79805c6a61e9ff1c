"""Details of one job: its state, its limits, and how its workers ended."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dualml.common.json_types import JsonObject
from dualml.common.words import Messages
from dualml.report.blocks import Cell, Column, Table
from dualml.runner.jobs.control import list_jobs
from dualml.runner.jobs.store import Jobs, JobSpec
from dualml.runner.jobs.table import TONES
from dualml.runner.jobs.workers.record import log_path, read_exits

#: Rows of the status table in their order; empty ones are omitted.
STATUS_ROWS = (
    "name",
    "status",
    "reason",
    "code",
    "on",
    "place",
    "trials",
    "seconds",
    "left",
    "cores",
    "gpus",
    "limit",
    "wait",
    "run",
    "out",
    "log",
)
COLUMNS = ("rank", "status", "host", "worker_seconds", "file")


def describe(jobs: Jobs, job: JobSpec) -> JsonObject:
    """Return the details of a job as JSON values: those of `JobRow.describe`, ``limit`` and
    ``wait_at_most`` in seconds, ``log``, and ``ends``, how each worker of a command that has ended
    did so. This starts the scheduler process where there are jobs for it."""
    row = next(row for row in list_jobs(jobs, everything=True) if row.job.id == job.id)
    out = Path(job.out)
    return {
        **row.describe(),
        "limit": job.limit or None,
        "wait_at_most": job.wait or None,
        "log": str(jobs.log(job.id)),
        "ends": [
            {
                "rank": ending.rank,
                "host": ending.host,
                "code": ending.code,
                "seconds": ending.seconds,
                "reason": ending.reason,
                "log": str(log_path(out, ending.rank)),
            }
            for ending in (read_exits(out, job.workers) if job.command else [])
        ],
    }


def job_tables(described: JsonObject, words: Messages) -> Iterator[Table]:
    """Yield a table of the details that `describe` returned, and one of the job's workers that have
    ended, if there are any."""
    told = dict(described)
    told["status"] = words(f"jobs.status.{described['status']}")
    told["trials"] = f"{told['ended']}/{told['total']}" if told["total"] else None
    told["run"] = shlex.join(told["words"])
    told["wait"] = told["wait_at_most"]
    told["cores"], told["gpus"] = (" ".join(map(str, told[key])) for key in ("cores", "gpus"))
    for key in ("seconds", "left", "limit", "wait"):
        told[key] = f"{told[key]:.0f} s" if told[key] else None
    rows: list[list[Cell | str]] = [
        [words(f"jobs.column.{key}"), Cell(str(told[key]), status_tone(key, described))]
        for key in STATUS_ROWS
        if told[key] not in (None, "")
    ]
    columns = [Column("what", ""), Column("value", "")]
    yield Table("job", words("jobs.job", id=described["id"]), columns, rows)
    if described["ends"]:
        heads = [Column(key, words(f"jobs.column.{key}")) for key in COLUMNS]
        yield Table(
            "workers", "", heads, [worker_cells(ending, words) for ending in described["ends"]]
        )


def status_tone(key: str, described: dict[str, Any]) -> Any:
    """Return the tone (``good``, ``bad`` or an empty string) of the cell of row ``key``: that of
    the job's status for ``status``, else none."""
    return TONES.get(described["status"], "") if key == "status" else ""


def worker_cells(ending: dict[str, Any], words: Messages) -> list[Cell | str]:
    """Return the cells of a worker that has ended: rank, status with its reason, host, seconds,
    log."""
    code = ending["code"]
    told = words("jobs.status.ok") if code == 0 else words("jobs.code", code=code)
    text = f"{told}: {ending['reason']}" if ending["reason"] else told
    status = Cell(text, "bad" if code else "good")
    seconds = f"{ending['seconds']:.1f} s"
    return [str(ending["rank"]), status, ending["host"], seconds, ending["log"]]
