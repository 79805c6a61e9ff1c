"""Jobs that run a command: everything after ``--`` of ``dualml submit``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualml.common.errors import UserError
from dualml.interface.cli.queueing import check_queue_options, check_render_options, queue_job
from dualml.runner.jobs.command import folder_label, script_path

if TYPE_CHECKING:
    from dualml.runner.jobs.control import JobFields


def submit_command(command: list[str], before: Sequence[str], given: dict[str, Any]) -> None:
    """Queue a command, or render it into files.

    Args:
        before: words before ``--`` that are not options of ``dualml submit``.
        given: the options of ``dualml submit``.

    Raises:
        UserError: the command cannot be started, or the options conflict.
    """
    from dualml.planning.cost.units import parse_bytes

    if not command:
        raise UserError("after -- stands a command: dualml submit -- python run.py")
    if before:
        raise UserError(f"before -- stand options of submit; received {before[0]!r}")
    for option, instead in (
        ("ranks_per_node", "--workers, of all nodes together"),
        ("gpus_per_node", "--gpus-per-worker"),
    ):
        if given[option] not in (0, 1):
            raise UserError(f"--{option.replace('_', '-')} is of runs; a command has {instead}")
    size, each = given["workers"] or 1, given["gpus_per_worker"] or 0
    if given["on"] in ("compose", "kubernetes"):
        from dualml.interface.cli.render import render_command

        check_render_options(given)
        render_command(command, size, each, given)
        return
    check_size(size, given["nodes"])
    check_startable(command)
    on_node = size // given["nodes"]
    check_queue_options(given, ranks=False, gpus_per_node=0)
    if given["gpus"] and each:
        raise UserError("--gpus and --gpus-per-worker say the same twice; leave one of them out")
    asked: JobFields = {
        "command": command,
        "workers": size,
        "nodes": given["nodes"],
        "mindspore": given["mindspore"],
        "cores": given["cores"],
        "gpus": (given["gpus"] or size * each) if given["on"] == "local" else 0,
        "memory": parse_bytes(given["memory"], "--memory") if given["memory"] else 0,
    }
    if given["out"] is not None:
        check_folder(given["out"])
    queue_job(given, [], asked, on_node, on_node * each, folder_label(command))


def check_size(size: int, nodes: int) -> None:
    """Raise `UserError` for too many workers, or if they do not divide evenly among nodes."""
    from dualml.experiment.arm import MAX_RANKS

    if size > MAX_RANKS:
        raise UserError(f"--workers {size}: at most {MAX_RANKS}")
    if size % nodes:
        text = f"choose a multiple of {nodes}, so that all nodes have as many"
        raise UserError(f"--workers {size} on --nodes {nodes}: {text}")


def check_startable(command: Sequence[str]) -> None:
    """Raise `UserError` if the program does not exist, or the script that is Python's first
    argument; after an option of Python no script is looked for.

    This is checked on submission, not when the job starts.
    """
    if shutil.which(command[0]) is None:
        raise UserError(f"{command[0]}: there is no such program on the PATH")
    script = script_path(command)
    if script is not None and not os.path.exists(script):
        raise UserError(f"{script}: there is no such script in {os.getcwd()}")


def check_folder(out: Path) -> None:
    """Raise `UserError` if the path is a file or a non-empty folder; nothing is created."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out} is there already; name a new folder")
