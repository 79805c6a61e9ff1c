"""The process of a job on this machine: ``python -m dualml.jobs.runner HOME NUMBER``.

It is the run itself, on the cores and GPUs that the job was given, and leaves word of its end.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path


def main(path: str, number: int) -> None:
    from dualml.jobs.process import born
    from dualml.jobs.store import ENDED, Jobs, arguments, clear
    from dualml.variables import JOB

    jobs = Jobs(Path(path))
    job = jobs.job(number)
    with jobs.locked():
        state = jobs.state(number)
        if state.status != "running" or state.pid not in (None, os.getpid()):
            return  # stopped, or begun by another, before this process was there
        if state.cores:
            os.sched_setaffinity(0, state.cores)
        jobs.change(number, pid=os.getpid(), created=born(os.getpid()))
    os.environ.update({**job.environ, JOB: str(number)})
    if state.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, state.gpus))
    os.chdir(job.cwd)
    if state.starts > 1:
        clear(Path(job.out))
    sys.argv = ["dualml", *arguments(job.words, job.out)]
    code = 1
    try:
        runpy.run_module("dualml", run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        with jobs.locked():
            status = ENDED.get(code, "failed")
            if status == "stopped" and not jobs.state(number).stopping:
                status = "queued"  # the machine goes down: go on when it is back
            jobs.change(number, status=status, code=code, pid=None, reason=None)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
