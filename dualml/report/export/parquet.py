"""Parquet: one file per table, by pyarrow."""

from __future__ import annotations

from dualml.report.export.base import TARGETS, ExportJob, require_library


@TARGETS.register("parquet", 20)
def write(job: ExportJob) -> str:
    """Write the tables of `dualml.report.export.csv`, typed, and return their folder; missing
    values are null. Raise `UserError` if pyarrow is missing or the requested folder is not
    empty."""
    require_library("pyarrow", "parquet")
    import pyarrow
    from pyarrow.parquet import write_table

    from dualml.report.export.tables import tables

    with job.folder() as out:
        for name, table in tables(job).items():
            write_table(pyarrow.table(table), out / f"{name}.parquet")
    return str(out)
