"""Jobs in Slurm, submitted as a script for ``sbatch``, which every cluster has.

submitit is not used: it transfers the work as a pickle on a shared disk.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import time
from pathlib import Path

from dualml.common.errors import UserError
from dualml.common.files import read_text, write_bytes
from dualml.common.machine import ProcessResult, run_bounded
from dualml.common.variables import JOB, JOB_OUT, OPTIONS, SECRET
from dualml.launch.connection import TOKEN
from dualml.runner.jobs.store import (
    EXIT_STATUSES,
    MODE,
    Jobs,
    JobSpec,
    JobState,
    Status,
    resume_argv,
    start_argv,
    waited_too_long,
)
from dualml.runner.jobs.workers.diagnosis import describe_end
from dualml.runner.jobs.workers.record import (
    failure_code,
    first_failure_under_slurm,
    read_exits,
    status_from_code,
)

LIMIT_S = 60.0
#: File with the exit code that the script leaves in the job's folder, as Slurm forgets jobs.
EXIT_CODE_FILE, MAX_EXIT_CODE_BYTES = "code", 16
#: Slurm's states in which a job waits.
PENDING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED")
#: Seconds between a job's end in Slurm and the file of its exit code on a slow disk.
SETTLE_S = 10.0
#: Seconds from rank 0's end to the end of all ranks, at most.
LAST_S = 60.0

#: Ports where the workers of a command form a group; the number of the job chooses one.
FIRST_PORT, PORTS = 20000, 10000


def job_script(jobs: Jobs, job: JobSpec) -> str:
    """Return the text of a job's script for ``sbatch``, of a command or of a run."""
    return command_script(jobs, job) if job.command else run_script(jobs, job)


def fill_template(name: str, jobs: Jobs, job: JobSpec, **values: object) -> str:
    """Return the text of the script ``NAME.template`` in this module's folder, with fields of the
    job and ``values`` in place of the names in braces."""
    template = Path(__file__).with_name(f"{name}.template").read_text("utf-8")
    return template.format(
        id=job.id,
        name=job.name or f"dualml-{job.id}",
        job=JOB,
        log=jobs.log(job.id),
        options="\n".join(f"#SBATCH {option}" for option in job.options),
        cwd=shlex.quote(job.cwd),
        code=shlex.quote(str(jobs.folder(job.id) / EXIT_CODE_FILE)),
        **values,
    )


def command_script(jobs: Jobs, job: JobSpec) -> str:
    """Return the ``sbatch`` script of a job that runs a user's command: every task is a worker, and
    one that fails ends the others."""
    return fill_template(
        "slurm_command",
        jobs,
        job,
        out_variable=JOB_OUT,
        workers=shlex.join([job.python, "-P", "-m", "dualml.runner.jobs.workers"]),
        out=shlex.quote(job.out),
        command=shlex.join(job.command),
        local_size=job.workers // job.nodes,
        first=FIRST_PORT,
        ports=PORTS,
        mindspore=int(job.mindspore),
    )


def run_script(jobs: Jobs, job: JobSpec) -> str:
    """Return the ``sbatch`` script of a job that starts a run, or resumes it if the run has a
    manifest.

    A single task starts its own ranks. Of several tasks each is a rank: Slurm gives the address of
    the first one, and the job's number gives a port.
    """
    python = [job.python, "-P", "-m", "dualml"]
    return fill_template(
        "slurm_run",
        jobs,
        job,
        begun=shlex.join([*python, *start_argv(job.words, job.out)]),
        resumed=shlex.join([*python, *resume_argv(job.words, job.out)]),
        manifest=shlex.quote(f"{job.out}/run.json"),
        last=LAST_S,
    )


def require_program(program: str) -> None:
    """Raise `UserError` where a program of Slurm is not installed."""
    if shutil.which(program) is None:
        text = "--on slurm is for the login node of a cluster"
        raise UserError(f"there is no {program} on this machine: {text}")


def run_slurm(*words: str, environ: dict[str, str] | None = None) -> ProcessResult:
    """Run one of Slurm's commands for at most `LIMIT_S` seconds; return its output and exit code,
    whichever it is (None after a timeout).

    Args:
        words: the command and its arguments.
        environ: variables added to those of this process, from which secrets are removed.

    Raises:
        UserError: Slurm is not installed.
    """
    require_program(words[0])
    # Without variables of options: their values became the job's options when it was submitted.
    left = (*OPTIONS, *SECRET)
    inherited = {name: value for name, value in os.environ.items() if name not in left}
    return run_bounded(list(words), LIMIT_S, {**inherited, **(environ or {})})


def submit(jobs: Jobs, job: JobSpec) -> None:
    """Hand a job over to Slurm, and record it as queued.

    Raises:
        UserError: Slurm refuses it; the text is Slurm's. The job is deleted, or, if it was
            submitted before, recorded as failed.
    """
    folder = jobs.folder(job.id)
    (folder / EXIT_CODE_FILE).unlink(missing_ok=True)
    path = folder / "job.sbatch"
    write_bytes(path, job_script(jobs, job).encode(errors="surrogateescape"), MODE)
    # Tasks inherit the environment of the submission, so the token is in no file.
    token = {TOKEN: os.environ.get(TOKEN) or secrets.token_hex(16)}
    done = run_slurm("sbatch", "--parsable", str(path), environ={**job.environ, **token})
    if done.code != 0:
        lines = [line for line in done.err.splitlines() if line.strip()]
        why = "; ".join(line.removeprefix("sbatch: ").strip() for line in lines)
        with jobs.locked():
            if jobs.state(job.id).starts:
                jobs.update_state(job.id, status="failed", reason=f"refused by Slurm: {why}")
            else:  # it never was in a queue: nothing to list
                shutil.rmtree(folder)
        raise UserError(f"job {job.id} was refused by Slurm: {why or f'exit code {done.code}'}")
    with jobs.locked():
        number = done.out.strip().partition(";")[0]
        starts = jobs.state(job.id).starts + 1
        jobs.update_state(job.id, status="queued", slurm=number, starts=starts, stopping=False)


def refresh_state(jobs: Jobs, job: JobSpec) -> JobState:
    """Return the state of a job; if it has not ended, ask Slurm first, and record what changed."""
    state = jobs.state(job.id)
    if state.status not in ("queued", "running") or state.slurm is None:
        return state
    status, code, reason = query_slurm(jobs, job, state)
    if status == state.status and reason == state.reason:
        return state
    with jobs.locked():
        return jobs.update_state(job.id, status=status, code=code, reason=reason)


def query_slurm(jobs: Jobs, job: JobSpec, state: JobState) -> tuple[Status, int | None, str | None]:
    """Return status, exit code and reason of a job, from Slurm or from the file its script left;
    ``state`` is the recorded one, which stands where Slurm does not answer. The exit code is None
    unless the script left it; nothing is recorded."""
    with contextlib.suppress(OSError, ValueError):
        code = int(read_text(jobs.folder(job.id) / EXIT_CODE_FILE, MAX_EXIT_CODE_BYTES))
        if job.command:
            return command_outcome(job, state, code)
        return EXIT_STATUSES.get(code, "failed"), code, None
    if state.slurm is None or shutil.which("squeue") is None:
        return state.status, None, state.reason
    columns = "--Format=State:30,RestartCnt:10,Reason:200"
    done = run_slurm("squeue", "--noheader", columns, "--jobs", state.slurm)
    told, again, why = [*done.out.split(None, 2), "", "", ""][:3]
    if told in PENDING:
        return "queued", None, pending_reason(why.strip(), again not in ("", "0"))
    if told == "DEADLINE":
        return "stopped", None, waited_too_long(job)
    if told == "RUNNING" or told == "COMPLETING":
        return "running", None, None
    if done.code != 0 and "Invalid job id" not in done.err:  # the controller does not answer
        return state.status, None, state.reason
    if time.time() - state.since < SETTLE_S and state.status == "running":
        return "running", None, None
    if job.wait and not state.stopping and state.status == "queued":
        return "stopped", None, waited_too_long(job)  # Slurm has forgotten why it is gone
    ended: Status = "stopped" if state.stopping else "failed"
    return ended, None, None if state.stopping else f"Slurm: {told or 'its job is gone'}"


def command_outcome(job: JobSpec, state: JobState, code: int) -> tuple[Status, int, str | None]:
    """Return status, exit code and reason of a command that has ended with srun's exit code
    ``code``.

    srun reports the largest exit code of its tasks, including those that it ended because another
    one failed.
    """
    out, size = Path(job.out), job.workers
    if code:
        failed = first_failure_under_slurm(read_exits(out, size), size)
        code = failure_code(failed) or code
    port = FIRST_PORT + int(state.slurm or 0) % PORTS
    return status_from_code(code), code, describe_end(out, size, port, job.lang, slurm=True)


def pending_reason(why: str, again: bool) -> str | None:
    """Return why a job is in the queue; None where Slurm does not say.

    Args:
        why: Slurm's reason.
        again: whether the job was running before.
    """
    why = "" if why == "None" else why
    back = "Slurm has put it back, as after the loss of a node" if again else ""
    return ": ".join(filter(None, (back, why))) or None


def stop(jobs: Jobs, job: JobSpec) -> None:
    """Cancel a job in Slurm, and record it as stopped.

    Raises:
        UserError: Slurm is not installed, or refuses to cancel it.
    """
    state = jobs.state(job.id)
    with jobs.locked():
        jobs.update_state(job.id, stopping=True)
    if state.slurm is not None:
        done = run_slurm("scancel", state.slurm)
        if done.code != 0 and "Invalid job id" not in done.err:
            raise UserError(f"job {job.id}: scancel {state.slurm}: {done.err.strip()}")
    with jobs.locked():
        jobs.update_state(job.id, status="stopped")
