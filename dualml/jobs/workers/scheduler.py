"""MindSpore's scheduler beside worker 0, by which processes of its ``init()`` find one another."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

from dualml.jobs.workers.seat import Seat
from dualml.launch.child import on_death_of_parent

#: The scheduler's own program: a process of the cluster whose role is another one.
PROGRAM = "import mindspore as ms; ms.set_device('CPU'); ms.communication.init()"
PYTHON = re.compile(r"python[\d.]*")


@contextlib.contextmanager
def scheduler(command: Sequence[str], seat: Seat) -> Iterator[None]:
    """Run the scheduler while the block is open, where this node is to have it.

    Args:
        command: of the workers; its Python, where it begins with one, has MindSpore.
        seat: of the node's first worker.
    """
    if not seat.scheduler or seat.rank != 0:
        yield
        return
    is_python = PYTHON.fullmatch(os.path.basename(command[0]))
    process = subprocess.Popen(
        [command[0] if is_python else sys.executable, "-P", "-c", PROGRAM],
        env={**os.environ, **seat.cluster("MS_SCHED", "sched")},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: on_death_of_parent(signal.SIGKILL),
    )  # fmt: skip
    try:
        yield
    finally:  # by itself it would stay for half a minute
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
