"""CSV: a file for each table, as RFC 4180 has it; numbers come back equal when they are read."""

from __future__ import annotations

import csv

from dualml.export.base import TARGETS, Job


@TARGETS.register("csv", 10)
def write(job: Job) -> str:
    """``records.csv``, ``trials.csv``, and where there are any ``verdicts.csv``,
    ``collectives.csv``; what has no value is empty."""
    from dualml.export.tables import tables

    with job.folder() as out:
        for name, table in tables(job).items():
            with (out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(table)
                rows.writerows(zip(*table.values(), strict=True))
    return str(out)
