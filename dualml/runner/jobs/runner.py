"""The process of a job on this machine: ``python -m dualml.runner.jobs.runner HOME NUMBER``.

It becomes the run itself, or the owner of a command's workers, on the cores and GPUs assigned to
the job, and records how it ended.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dualml.common.variables import JOB_OUT as OUT

if TYPE_CHECKING:
    from dualml.runner.jobs.store import JobSpec, Status


def run_job(path: str, number: int) -> None:
    """Run job ``number`` of the jobs folder ``path`` in this process, record its exit code, and end
    the process with it; return without doing anything if the job was stopped, or runs in another
    process."""
    from dualml.common.variables import JOB
    from dualml.runner.jobs.process import process_start_time
    from dualml.runner.jobs.store import EXIT_STATUSES, Jobs, job_argv, remove_unstarted
    from dualml.runner.jobs.workers.record import status_from_code

    jobs = Jobs(Path(path))
    job = jobs.job(number)
    with jobs.locked():
        state = jobs.state(number)
        if state.status != "running" or state.pid not in (None, os.getpid()):
            return  # stopped, or begun by another, before this process was there
        if state.cores:
            os.sched_setaffinity(0, state.cores)
        jobs.update_state(number, pid=os.getpid(), created=process_start_time(os.getpid()))
    os.environ.update({**job.environ, JOB: str(number)})
    if state.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, state.gpus))
    os.chdir(job.cwd)
    if state.starts > 1 and not job.command:
        remove_unstarted(Path(job.out))
    code, reason = 1, None
    try:
        if job.command:
            code, reason = run_command(job)
        else:
            sys.argv = ["dualml", *job_argv(job.words, job.out)]
            runpy.run_module("dualml", run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    finally:
        with jobs.locked():
            state = jobs.state(number)
            status: Status = (
                status_from_code(code) if job.command else EXIT_STATUSES.get(code, "failed")
            )
            if status == "stopped" and not state.stopping and not job.command:
                status = "queued"  # the machine goes down: go on when it is back
            # If it was ended for exceeding a limit, the reason is recorded already.
            reason = state.reason if state.stopping else reason
            jobs.update_state(number, status=status, code=code, pid=None, reason=reason)
    sys.exit(code)


def run_command(job: JobSpec) -> tuple[int, str | None]:
    """Run the workers of a command on this machine, and wait for their end.

    Returns:
        The exit code, 130 after an interruption; and a sentence about the end (`describe_end`),
        which is printed if the code is 0, or None.
    """
    from dualml.launch.route import free_port
    from dualml.runner.jobs.workers.diagnosis import describe_end
    from dualml.runner.jobs.workers.environment import WorkerEnv
    from dualml.runner.jobs.workers.group import run_workers

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out, size = Path(job.out), job.workers
    os.environ[OUT] = job.out
    port, scheduler = free_port(), free_port() if job.mindspore else 0
    seats = [
        WorkerEnv(
            rank=rank,
            local_rank=rank,
            size=size,
            local_size=size,
            address="127.0.0.1",
            port=port,
            scheduler=scheduler,
        )
        for rank in range(size)
    ]
    try:
        code = run_workers(job.command, seats, out)
    except KeyboardInterrupt:
        return 130, None
    said = describe_end(out, size, port, job.lang)
    if said and code == 0:
        print(f"dualml: {said}", flush=True)
    return code, said


if __name__ == "__main__":
    run_job(sys.argv[1], int(sys.argv[2]))
