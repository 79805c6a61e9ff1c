"""Programs that start ranks of MindSpore, as their users call them. Nothing here imports it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dualml.backend import Launcher
from dualml.launch.route import free_port
from dualml.machine import python


def msrun(size: int, module: str, words: Sequence[str]) -> list[str]:
    program = str(Path(sys.executable).with_name("msrun"))
    count = (f"--worker_num={size}", f"--local_worker_num={size}")
    logs = f"--log_dir={Path(words[0]).parent}"
    port = f"--master_port={free_port()}"
    # It takes the word `python` for the interpreter, and any other for a script.
    command = ["python", *python("-m", module, *words)[1:]]
    return [program, *count, port, logs, "--join=True", *command]


def path() -> str:
    """Where this Python is the first of its name."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


LAUNCHERS = {"msrun": Launcher(msrun, {"PATH": path()})}
