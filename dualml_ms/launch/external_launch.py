"""Detection of processes that ``msrun`` has started. Nothing here imports mindspore."""

from __future__ import annotations

import os
import sys

from dualml.backend import ExternalLaunch

#: The scheduler, through which ranks find one another; ``msrun`` starts the ranks' own command for
#: it. It ends when the other end of its standard input is closed, for whatever reason. Two
#: processes: the scheduler's `init` blocks the interpreter, and would stay for half a minute.
SCHEDULER = """
import subprocess, sys
code = "import mindspore as ms; ms.set_device('CPU'); ms.communication.init()"
child = subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.DEVNULL)
try:
    sys.stdin.read()
finally:
    child.kill()
"""


def detect_external_launch() -> ExternalLaunch | None:
    """Return which rank, or with the number −1 the scheduler, this process is according to the
    environment that ``msrun`` sets; None in a process that ``msrun`` has not started.

    A process joins the cluster only once: it can run one group of ranks.
    """
    role = os.environ.get("MS_ROLE")
    if role not in ("MS_WORKER", "MS_SCHED"):
        return None
    rank = -1 if role == "MS_SCHED" else int(os.environ["RANK_ID"])
    size = int(os.environ["MS_WORKER_NUM"])
    return ExternalLaunch(
        "msrun", "mindspore", rank, size, 1, (sys.executable, "-P", "-c", SCHEDULER)
    )
