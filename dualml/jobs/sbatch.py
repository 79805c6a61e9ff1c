"""Options of ``sbatch``, from those of ``dualml submit``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dualml.errors import UserError

#: What a line of the script may hold.
OPTION = re.compile(r"^--[a-z][a-z0-9-]*(=[\w.,:/@%+\[\]*()-]+)?$")
NAME = re.compile(r"^[\w.,-]+$")
TIME = re.compile(r"^(\d+-)?\d+(:\d+){0,2}$")
#: Said by the script itself.
OURS = ("--output", "--job-name", "--open-mode", "--export", "--wrap", "--chdir", "--array")


def options(
    *,
    nodes: int,
    ranks_per_node: int,
    gpus_per_node: int,
    time: str | None,
    partition: str | None,
    sbatch: Sequence[str],
) -> list[str]:
    """Those that differ from what Slurm does without them.

    Raises:
        UserError: something that is no option, or that the script says itself.
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
    for option in sbatch:
        if not OPTION.match(option):
            raise UserError(f"--sbatch {option!r}: use one option, as in --sbatch=--mem=8G")
        if option.partition("=")[0] in OURS:
            raise UserError(f"--sbatch {option}: dualml's script says that itself")
        found.append(option)
    return found
