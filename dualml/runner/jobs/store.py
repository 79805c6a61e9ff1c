"""Jobs on disk: one folder per job with ``job.json``, the request, and ``state.json``, the state.
Every change of a state happens under one lock."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from dualml.common import variables
from dualml.common.errors import UserError, did_you_mean
from dualml.common.files import is_regular
from dualml.common.parse import is_unicode
from dualml.experiment.store.jsonfile import Count, JsonFile, Number, Record, validate_record
from dualml.runner.jobs.folders import STATE_NAME, VARIABLE, job_numbers, parse_job_number
from dualml.runner.jobs.folders import jobs_folder as jobs_folder

LOCK_S = 30.0
#: Largest number of waiting jobs.
MAX_QUEUED = 1000
#: Permissions of the files and folders of jobs: no other user may read what is run, and with which
#: variables.
MODE, FOLDER_MODE = 0o600, 0o700
#: Prefixes of the variables that a job inherits from the environment of its submission; secrets
#: are excluded.
CAPTURED_PREFIXES = (
    "DUALML_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "CUDA_",
    "PYTHONPATH",
    "PATH",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "NCCL_",
    "GLOO_",
    "HCCL_",
    "ASCEND_",
)

Status = Literal["queued", "running", "ok", "different", "failed", "stopped"]
WAITING: tuple[Status, ...] = ("queued", "running")
#: Exit code of a run → status of its job; every other code means that it failed.
EXIT_STATUSES: dict[int, Status] = {0: "ok", 3: "different", 130: "stopped"}


#: An argument of a command line: Unicode, because it is stored as JSON, without a NUL character.
Word = Annotated[str, Field(pattern=r"^[^\x00]*$")]
PathText = Annotated[Word, Field(min_length=1)]


class JobSpec(Record):
    """The request of a job; ``words`` are the arguments of ``dualml run`` without the run folder.

    Attributes:
        name: chosen by the user.
        command: in place of ``words``: a command that is no run, started once for each worker.
        workers, nodes: of a command.
        mindspore: whether workers of a command need MindSpore's scheduler.
        limit: seconds it may run; 0 for no limit.
        wait: seconds it may wait for its first start; 0 for no limit.
    """

    id: Count
    on: Literal["local", "slurm"]
    words: list[Word]
    cwd: PathText
    out: PathText
    python: PathText
    host: str
    user: str
    submitted: Number
    environ: dict[str, str] = Field(default_factory=dict)
    cores: Count = 0
    gpus: Count = 0
    memory: Count = 0
    name: Word | None = None
    command: list[Word] = Field(default_factory=list)
    workers: Annotated[int, Field(ge=1)] = 1
    nodes: Annotated[int, Field(ge=1)] = 1
    mindspore: bool = False
    lang: Literal["en", "zh"] = "en"
    limit: Number = 0
    wait: Number = 0
    #: Options of sbatch, ``--nodes=2``.
    options: list[str] = Field(default_factory=list)

    @property
    def command_line(self) -> list[str]:
        """Words of the job as the user gave them: the whole command, or the arguments after
        ``dualml run``."""
        return self.command or self.words


class JobState(Record):
    """The state of a job.

    ``created`` is the start time of process ``pid`` and distinguishes it from a later process with
    the same pid. ``starts`` counts how often the job was started.
    """

    status: Status
    since: Number
    pid: Count | None = None
    created: Number | None = None
    code: int | None = None
    reason: str | None = None
    starts: Count = 0
    cores: list[Count] = Field(default_factory=list)
    gpus: list[Count] = Field(default_factory=list)
    slurm: str | None = None
    stopping: bool = False


JOB = JsonFile("job.json", JobSpec, version=1, mode=MODE)
STATE = JsonFile(STATE_NAME, JobState, version=1, mode=MODE)


def captured_env() -> dict[str, str]:
    """Return the environment variables that a job inherits and that are stored in its file: those
    of this process whose names begin with one of `CAPTURED_PREFIXES`, without secrets.

    Files of defaults are switched off, and variables of options left out: the job's options already
    include what they say. Secrets are never stored: a run on several machines draws a token of its
    own.
    """
    left = (VARIABLE, *variables.OPTIONS)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(CAPTURED_PREFIXES)
        and name not in left
        and not variables.is_secret(name)
        and is_unicode(value)  # others come from the process that starts the job
    }
    return {**kept, variables.CONFIG: variables.NO_FILE}


@dataclass(frozen=True)
class Jobs:
    """All jobs of a user.

    Args:
        path: the folder; created with the first job.
    """

    path: Path

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of all jobs inside the block, so that no other process changes a state; it
        is not reentrant, and reading needs no lock.

        Raises:
            UserError: another process holds it for `LOCK_S` seconds.
            OSError: the folder cannot be made or written.
        """
        from filelock import FileLock, Timeout

        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            with FileLock(self.path / "lock", timeout=LOCK_S, mode=MODE):
                yield
        except Timeout:
            raise UserError(
                f"{self.path}/lock is held by another process for {LOCK_S:g} s"
            ) from None

    def folder(self, number: int) -> Path:
        """Return the path of a job's folder, whether there is such a job or not."""
        return self.path / str(number)

    def log(self, number: int) -> Path:
        """Return the path of a job's log, which may not exist yet."""
        return self.folder(number) / "log"

    def numbers(self) -> list[int]:
        """Return the numbers of all jobs, oldest first."""
        return job_numbers(self.path)

    def job(self, number: int) -> JobSpec:
        """Read the request of a job.

        Raises:
            UserError: there is no job with this number.
        """
        if not is_regular(self.folder(number) / STATE.name):
            last = [str(n) for n in self.numbers()[-5:]]
            hint = did_you_mean(str(number), last) if last else "; none was submitted"
            raise UserError(f"there is no job {number} in {self.path}{hint}")
        return JOB.read(self.folder(number))

    def find_number(self, word: str) -> int:
        """Return the number of a job given by its number, which is not looked up, or its name; of
        several jobs of a name the last.

        Raises:
            UserError: no job has this name.
        """
        if word.isdecimal() and len(word) < 10 and int(word) > 0:
            return int(word)
        names = {self.job(number).name: number for number in self.numbers()}
        if word not in names:
            known = [name for name in names if name is not None]
            hint = did_you_mean(word, known) if known else "; none has a name"
            raise UserError(f"{word!r} is no number or name of a job{hint}")
        return names[word]

    def state(self, number: int) -> JobState:
        """Read the state of a job, as recorded; `UserError` if there is no such job."""
        return STATE.read(self.folder(number))

    def update_state(self, number: int, **values: Any) -> JobState:
        """Change fields of a job's state on disk, inside `locked`, and return the new state; a new
        ``status`` sets ``since`` to now."""
        status = values.get("status")
        before = self.state(number)
        if status is not None and status != before.status:
            values.setdefault("since", time.time())
        after = before.model_copy(update=values)
        STATE.write(self.folder(number), JobState.model_validate(after.model_dump()))
        return after

    def add(self, **asked: Any) -> JobSpec:
        """Add a job at the end of the queue, under the next free number, and return it; nothing is
        started. ``{id}`` in its run folder becomes the number.

        Args:
            asked: fields of `JobSpec` other than those that are determined here.

        Raises:
            UserError: the queue is full.
        """
        with self.locked():
            waiting = [n for n in self.numbers() if self.state(n).status in WAITING]
            if len(waiting) >= MAX_QUEUED:
                raise UserError(f"{len(waiting):,} jobs are waiting; stop some, or wait")
            number = (
                max(filter(None, (parse_job_number(p) for p in self.path.iterdir())), default=0) + 1
            )
            asked["out"] = asked["out"].replace("{id}", str(number))
            known = {
                "id": number,
                "host": socket.gethostname(),
                "user": getpass.getuser(),
                "submitted": time.time(),
                "environ": captured_env(),
            }
            folder = self.folder(number)
            job = validate_record(
                JobSpec, {**known, **asked}, folder / JOB.name
            )  # a path need not be Unicode
            folder.mkdir(mode=FOLDER_MODE)
            JOB.write(folder, job)
            STATE.write(folder, JobState(status="queued", since=time.time()))
            return job


def check_ownership(job: JobSpec) -> None:
    """Raise `UserError` for a job of another user, or a local job of another machine, whose
    processes are not here."""
    if job.on == "local" and job.host != socket.gethostname():
        raise UserError(f"job {job.id} is of {job.host}, this is {socket.gethostname()}: go there")
    if job.user != getpass.getuser():
        raise UserError(f"job {job.id} is of user {job.user}; you are {getpass.getuser()}")


def waited_too_long(job: JobSpec) -> str:
    """Return the reason to record for a job that waited longer than its limit, ``job.wait``
    seconds."""
    return f"waited for longer than {job.wait:g} s (--wait-at-most)"


def remove_unstarted(out: Path) -> None:
    """Remove plan and lock from the run folder ``out`` if the run was killed before it had a
    ``run.json``."""
    if not (out / "run.json").exists():
        shutil.rmtree(out / "plan", ignore_errors=True)
        (out / ".lock").unlink(missing_ok=True)


def start_argv(words: Sequence[str], out: str) -> list[str]:
    """Return the arguments of ``dualml`` that start a run in ``out``."""
    return ["run", *words, "--out", out]


def resume_argv(words: Sequence[str], out: str) -> list[str]:
    """Return the arguments of ``dualml`` that resume the run in ``out``; of ``words``, those of its
    start, only options that a resumed run accepts are kept."""
    kept = [word for word in words if word in ("--no-report", "--no-find", "--insecure")]
    for option in ("--hosts", "--lang"):
        if option in words:
            at = words.index(option)
            kept += words[at : at + 2]
    return ["run", "--resume", out, *kept]


def job_argv(words: Sequence[str], out: str) -> list[str]:
    """Return the arguments of ``dualml`` that start this job, or resume it if its run folder has a
    ``run.json``."""
    there = (Path(out) / "run.json").exists()
    return resume_argv(words, out) if there else start_argv(words, out)
