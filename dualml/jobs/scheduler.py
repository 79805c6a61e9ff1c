"""``python -m dualml.jobs.scheduler HOME``: the one process that starts jobs of this machine."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from filelock import FileLock, Timeout

from dualml.files import write_bytes
from dualml.jobs.local import POLL_S, Queue
from dualml.jobs.store import MODE, Jobs

#: Another one that is about to end does so within so many seconds.
LEAVE_S = 2.0
#: Its number, for people.
PID = "scheduler.pid"


def main(path: Path) -> None:
    """Turn after turn, until nothing waits or runs; at once where another one is at it."""
    jobs, only = Jobs(path), FileLock(path / "scheduler.lock", mode=MODE)
    try:
        only.acquire(timeout=LEAVE_S)
    except Timeout:
        return
    queue, pid = Queue(jobs), path / PID
    write_bytes(pid, f"{os.getpid()}\n".encode(), MODE)
    try:
        while True:
            with jobs.locked():
                if not queue.turn():
                    pid.unlink(missing_ok=True)
                    only.release()  # before anybody can add a job that nobody would start
                    return
            time.sleep(POLL_S)
    finally:
        only.release()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
