"""What gloo's threads need where ranks have few cores."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

#: Gloo's thread that waits for sockets, as the system knows it: one for each process group.
LOOP = "gloo_tcp_loop"


def loops() -> list[int]:
    """Numbers of these threads in this process; none where the system does not tell (not Linux)."""
    tasks, found = Path("/proc/self/task"), []
    for task in tasks.iterdir() if tasks.is_dir() else ():
        with contextlib.suppress(OSError):  # it has ended
            if (task / "comm").read_text("ascii", "replace").strip() == LOOP:
                found.append(int(task.name))
    return found


def wait_your_turn() -> None:
    """Keep gloo's receiving thread from pushing the sending one off its core.

    Both need the lock of a connection. The receiver does not wait for it, but asks the system again
    at once whether there is something to read: where it has pushed aside the thread that holds the
    lock, which every arriving message makes likely, it goes round until the scheduler's next tick.
    Those are 4 ms on a kernel of 250 Hz, for a message that takes 0.2 ms. Under the policy for
    batches (Linux) a thread that wakes up waits until the core is free.
    """
    for thread in loops():
        with contextlib.suppress(OSError):  # the system forbids it
            os.sched_setscheduler(thread, os.SCHED_BATCH, os.sched_param(0))
