"""CSV: one file per table, by RFC 4180; numbers are written so that reading returns the same
values."""

from __future__ import annotations

import csv

from dualml.report.export.base import TARGETS, ExportJob


@TARGETS.register("csv", 10)
def write(job: ExportJob) -> str:
    """Write ``records.csv``, ``trials.csv`` and, if there are any, ``verdicts.csv`` and
    ``collectives.csv``, and return their folder; missing values are empty. Raise `UserError` if the
    requested folder is not empty."""
    from dualml.report.export.tables import tables

    with job.folder() as out:
        for name, table in tables(job).items():
            with (out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(table)
                rows.writerows(zip(*table.values(), strict=True))
    return str(out)
