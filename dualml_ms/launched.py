"""Whether ``msrun`` has started this process. Nothing here imports mindspore."""

from __future__ import annotations

import os
import sys

from dualml.launch.adopted import Adopted

#: What ``msrun`` would have its scheduler do; it starts the ranks' own command in that role, too.
SCHEDULER = (
    "import mindspore as ms; ms.set_device('CPU'); from mindspore.communication import init; init()"
)


def adopted() -> Adopted | None:
    """What ``msrun`` says of this process in its environment: a rank, or the scheduler.

    Its cluster is joined once in its life: one group of ranks.
    """
    role = os.environ.get("MS_ROLE")
    if role not in ("MS_WORKER", "MS_SCHED"):
        return None
    rank = -1 if role == "MS_SCHED" else int(os.environ["RANK_ID"])
    size = int(os.environ["MS_WORKER_NUM"])
    return Adopted("msrun", "mindspore", rank, size, 1, (sys.executable, "-c", SCHEDULER))
