"""What gloo's threads need where ranks have few cores."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

#: Gloo's thread that waits for sockets, as the system knows it: one for each process group.
LOOP = "gloo_tcp_loop"


def loops() -> list[int]:
    """Numbers of these threads in this process; none where the system does not tell (not Linux)."""
    tasks, numbers = Path("/proc/self/task"), []
    for task in tasks.iterdir() if tasks.is_dir() else ():
        with contextlib.suppress(OSError):  # it has ended
            if (task / "comm").read_text("ascii", "replace").strip() == LOOP:
                numbers.append(int(task.name))
    return numbers


def wait_your_turn() -> None:
    """Keep gloo's receiving thread from pushing the sending one off its core.

    Measured on a Linux kernel of 250 Hz without preemption: of sums of 240 KB over two ranks that
    have a core each, half take less than 0.3 ms, but more than one in ten 4 ms, the scheduler's
    tick, and most of the processor's time is this thread's. Under the policy for batches, where a
    thread that wakes up waits until the core is free, nine in ten take less than 0.3 ms. The likely
    reason: it tries the lock of a connection again and again, and has pushed aside its holder.
    """
    for thread in loops():
        with contextlib.suppress(OSError):  # the system forbids it
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
