"""Commands of the programs that start MindSpore ranks. Nothing here imports mindspore."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dualml.backend import Launcher
from dualml.common.machine import python_argv
from dualml.launch.route import free_port


def msrun_command(size: int, module: str, words: Sequence[str]) -> list[str]:
    """Return the command of ``msrun`` for ``size`` ranks of this machine, which run ``module`` with
    the arguments ``words``; its port is one that is free now, and the folder of the file
    ``words[0]`` receives its logs."""
    count = (f"--worker_num={size}", f"--local_worker_num={size}")
    logs = f"--log_dir={Path(words[0]).parent}"
    port = f"--master_port={free_port()}"
    # msrun takes the word `python` as the interpreter, and any other as a script.
    command = ["python", *python_argv("-m", module, *words)[1:]]
    # `msrun` itself is a script beside the interpreter, which an environment may lack.
    program = python_argv("-m", "mindspore.parallel.cluster.run")
    return [*program, *count, port, logs, "--join=True", *command]


def search_path() -> str:
    """Return this process's ``PATH`` with the folder of this Python in front."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


LAUNCHERS = {"msrun": Launcher(msrun_command, {"PATH": search_path()})}
