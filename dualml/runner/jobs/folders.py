"""Location and numbers of the jobs, from the names of their folders alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dualml.common.files import is_regular

#: Variable with the folder of all jobs, in place of the user's data folder.
VARIABLE = "DUALML_JOBS"
#: File with the state, in the folder of each job.
STATE_NAME = "state.json"
NUMBER = re.compile("[1-9][0-9]{0,8}")


def jobs_folder() -> Path:
    """Return the folder of all jobs, which may not exist yet: that of the variable ``DUALML_JOBS``,
    or ``dualml/jobs`` in the user's data folder."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("dualml") / "jobs"


def job_numbers(path: Path | None = None) -> list[int]:
    """Return the numbers of all jobs, ended ones included, oldest first; empty if there is no
    folder. Folders without a state file are ignored.

    Args:
        path: folder of all jobs; by default `jobs_folder`.
    """
    path = path or jobs_folder()
    if not path.is_dir():
        return []
    folders = {number: p for p in path.iterdir() if (number := parse_job_number(p)) is not None}
    return sorted(n for n, folder in folders.items() if is_regular(folder / STATE_NAME))


def parse_job_number(folder: Path) -> int | None:
    """Return the job number of a folder, or None for a name that dualml does not give to a job's
    folder."""
    return int(folder.name) if NUMBER.fullmatch(folder.name) else None
