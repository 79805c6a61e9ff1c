"""Whether ``msrun`` has started this process. Nothing here imports mindspore."""

from __future__ import annotations

import os
import sys

from dualml.backend import Adopted

#: The scheduler, by which ranks find one another; ``msrun`` starts the ranks' own command for it.
#: Ends with whoever holds the other end of its standard input, however that ended. Two processes:
#: the scheduler's `init` holds the interpreter, and would stay for half a minute.
SCHEDULER = """
import subprocess, sys
code = "import mindspore as ms; ms.set_device('CPU'); ms.communication.init()"
child = subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.DEVNULL)
try:
    sys.stdin.read()
finally:
    child.kill()
"""


def adopted() -> Adopted | None:
    """What ``msrun`` says of this process in its environment: a rank, or the scheduler.

    Its cluster is joined once in its life: one group of ranks.
    """
    role = os.environ.get("MS_ROLE")
    if role not in ("MS_WORKER", "MS_SCHED"):
        return None
    rank = -1 if role == "MS_SCHED" else int(os.environ["RANK_ID"])
    size = int(os.environ["MS_WORKER_NUM"])
    return Adopted("msrun", "mindspore", rank, size, 1, (sys.executable, "-P", "-c", SCHEDULER))
