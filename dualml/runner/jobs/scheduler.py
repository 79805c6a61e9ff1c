"""The process that starts jobs of this machine, one per user: ``python -m
dualml.runner.jobs.scheduler HOME``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from filelock import FileLock, Timeout

from dualml.common.files import write_bytes
from dualml.runner.jobs.local import POLL_S, LocalQueue
from dualml.runner.jobs.store import MODE, Jobs

#: Seconds within which another scheduler that is about to end must have ended.
LEAVE_S = 2.0
#: File with the pid of the scheduler, for users.
PID = "scheduler.pid"


def main(path: Path) -> None:
    """Schedule the jobs in the folder ``path`` until none of this machine waits or runs; return,
    after at most `LEAVE_S` seconds, where another process does so already."""
    jobs, only = Jobs(path), FileLock(path / "scheduler.lock", mode=MODE)
    try:
        only.acquire(timeout=LEAVE_S)
    except Timeout:
        return
    queue, pid = LocalQueue(jobs), path / PID
    write_bytes(pid, f"{os.getpid()}\n".encode(), MODE)
    try:
        while True:
            with jobs.locked():
                if not queue.run_once():
                    pid.unlink(missing_ok=True)
                    only.release()  # before anybody can add a job that nobody would start
                    return
            time.sleep(POLL_S)
    finally:
        only.release()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
