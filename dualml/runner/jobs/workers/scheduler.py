"""MindSpore's scheduler next to worker 0, through which processes find one another in
``init()``."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence

from dualml.launch.process import start_session
from dualml.runner.jobs.workers.environment import WorkerEnv

#: The scheduler's program: it joins the cluster like a worker, but its variables set another role.
PROGRAM = "import mindspore as ms; ms.set_device('CPU'); ms.communication.init()"
PYTHON = re.compile(r"python[\d.]*")


@contextlib.contextmanager
def mindspore_scheduler(command: Sequence[str], worker_env: WorkerEnv) -> Iterator[None]:
    """Run MindSpore's scheduler while the block is open, if this node is to have it.

    Args:
        command: of the workers; if it begins with a Python interpreter, that one has MindSpore.
        worker_env: of the node's first worker.
    """
    if not worker_env.scheduler or worker_env.rank != 0:
        yield
        return
    is_python = PYTHON.fullmatch(os.path.basename(command[0]))
    words = [command[0] if is_python else sys.executable, "-P", "-c", PROGRAM]
    environ = {**os.environ, **worker_env.cluster_variables("MS_SCHED", "sched")}
    process = start_session(words, parent_death=signal.SIGKILL, env=environ)
    try:
        yield
    finally:  # by itself it would stay for half a minute
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
