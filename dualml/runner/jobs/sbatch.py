"""Options of ``sbatch``, made from those of ``dualml submit``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from dualml.common.errors import UserError

#: An option that may stand in a line of the script.
OPTION = re.compile(r"^--[a-z][a-z0-9-]*(=[\w.,:/@%+\[\]*()-]+)?$")
NAME = re.compile(r"^[\w.,-]+$")
TIME = re.compile(r"^(\d+-)?\d+(:\d+){0,2}$")
#: A job's name, which is also its folder's and its name in Slurm.
JOB_NAME = re.compile(r"[A-Za-z][\w.-]{0,62}", re.ASCII)
#: Options of ``sbatch`` that the generated script sets.
RESERVED_OPTIONS = (
    "--output",
    "--job-name",
    "--open-mode",
    "--export",
    "--wrap",
    "--chdir",
    "--array",
)


def sbatch_options(
    *,
    nodes: int,
    ranks_per_node: int,
    gpus_per_node: int,
    time: str | None,
    partition: str | None,
    sbatch: Sequence[str],
    wait: float | None = None,
) -> list[str]:
    """Return the options of ``sbatch`` that differ from Slurm's defaults.

    Args:
        nodes, ranks_per_node, gpus_per_node: resources of the job.
        time: limit of its running time, in Slurm's format.
        partition: of the cluster.
        sbatch: further options, as given by the user.
        wait: seconds that a job may wait; ignored without ``time``. Slurm has a deadline by which a
            job must end; with a time limit it implies one by which the job must begin.

    Raises:
        UserError: something is not an option, or is set by the script itself.
    """
    found = []
    if nodes > 1 or ranks_per_node > 1:
        found += [f"--nodes={nodes}", f"--ntasks-per-node={ranks_per_node}"]
    if gpus_per_node:
        found.append(f"--gpus-per-node={gpus_per_node}")
    if time is not None:
        if not TIME.match(time):
            how = "minutes, hours:minutes:seconds or days-hours, as Slurm reads them"
            raise UserError(f"--time {time!r}: use {how}")
        found.append(f"--time={time}")
    if partition is not None:
        if not NAME.match(partition):
            raise UserError(f"--partition {partition!r} is no name of a partition")
        found.append(f"--partition={partition}")
    if wait is not None and time is not None:
        found.append(f"--deadline=now+{math.ceil(wait) + parse_time_limit(time)}seconds")
    for option in sbatch:
        if not OPTION.match(option):
            raise UserError(f"--sbatch {option!r}: use one option, as in --sbatch=--mem=8G")
        if option.partition("=")[0] in RESERVED_OPTIONS:
            raise UserError(f"--sbatch {option}: dualml's script says that itself")
        found.append(option)
    return found


def parse_time_limit(text: str) -> int:
    """Convert a time in Slurm's format to seconds: ``90`` (minutes), ``1:30:00``, ``2-12``.

    >>> parse_time_limit("1-2:30")
    95400

    Raises:
        UserError: the text has another format, or is 0.
    """
    how = "minutes, hours:minutes:seconds or days-hours, above 0"
    if not TIME.match(text):
        raise UserError(f"--time {text!r}: use {how}")
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:
        hours, minutes, secs = (*parts, 0, 0)[:3]
    else:
        hours, minutes, secs = ((0, parts[0], 0), (0, *parts), parts)[len(parts) - 1]
    total = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs
    if not 0 < total < 2**31:
        raise UserError(f"--time {text!r}: use {how}")
    return total


def check_name(name: str | None) -> None:
    """Raise `UserError` for an invalid name of a job, such as a number, because jobs have numbers;
    None is valid."""
    if name is not None and not JOB_NAME.fullmatch(name):
        text = "use up to 63 letters, digits, _, . and -, a letter first"
        raise UserError(f"--name {name!r}: {text}")


def check_wait(on: str, wait: float | None, time: str | None) -> None:
    """Check the limit ``wait`` of a queued job in seconds; raise `UserError` if it is not positive,
    or where ``on`` cannot enforce it (Slurm needs ``time``). None is valid."""
    if wait is None:
        return
    if wait <= 0:
        raise UserError(f"--wait-at-most {wait:g}: use seconds, above 0")
    if on not in ("local", "slurm"):
        raise UserError(f"--wait-at-most is for --on local and --on slurm; --on {on} has no queue")
    if on == "slurm" and time is None:
        text = "Slurm tells from both by when the job has to begin"
        raise UserError(f"--wait-at-most with --on slurm needs --time: {text}")
