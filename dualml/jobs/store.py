"""Jobs on disk: a folder for each, ``job.json``, what was asked for, and ``state.json``, how it
stands. Every change of a state happens under one lock."""

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

from dualml import variables
from dualml.errors import UserError, nearest
from dualml.files import is_regular
from dualml.jobs.place import STATE_NAME, VARIABLE, number_of, numbers
from dualml.jobs.place import home as home
from dualml.parse import is_unicode
from dualml.store.jsonfile import Count, JsonFile, Number, Record, checked

LOCK_S = 30.0
#: Jobs that may wait at a time.
MOST_QUEUED = 1000
#: Permissions of the files and folders of jobs: what is run, and with which variables, is for
#: nobody else to read.
MODE, FOLDER_MODE = 0o600, 0o700
#: What a job takes along of the environment it was submitted in, but for secrets.
TAKEN = ("DUALML_", "OMP_", "MKL_", "OPENBLAS_", "CUDA_", "PYTHONPATH", "PATH", "VIRTUAL_ENV",
         "LD_LIBRARY_PATH", "NCCL_", "GLOO_", "HCCL_", "ASCEND_")  # fmt: skip

Status = Literal["queued", "running", "ok", "different", "failed", "stopped"]
WAITING: tuple[Status, ...] = ("queued", "running")
ENDED: dict[int, Status] = {0: "ok", 3: "different", 130: "stopped"}


#: What a command line of the system can have: Unicode, which a file of JSON can hold, and no zero.
Word = Annotated[str, Field(pattern=r"^[^\x00]*$")]
PathText = Annotated[Word, Field(min_length=1)]


class Job(Record):
    """What was asked for; ``words`` are those of ``dualml run``, the run folder apart.

    Attributes:
        name: by which people call it.
        command: in place of ``words``: a command that is no run, started once for each worker.
        workers, nodes: of a command.
        mindspore: workers of a command find MindSpore's scheduler.
        limit: seconds it may run; ``wait``: seconds it may wait for its first turn; 0: any.
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
    def shown(self) -> list[str]:
        """The words of its command, as people gave them."""
        return self.command or self.words


class State(Record):
    """How it stands; ``created`` is the start of process ``pid``, which tells it from a later one
    of that number. ``starts`` counts how often it was begun."""

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


JOB = JsonFile("job.json", Job, version=1, mode=MODE)
STATE = JsonFile(STATE_NAME, State, version=1, mode=MODE)


def taken() -> dict[str, str]:
    """What a job takes along of this process's environment, which a file of the job then has. Its
    options have what variables and files of defaults say; a secret stands in no file: a run on
    several machines draws a token of its own."""
    left = (VARIABLE, *variables.OPTIONS)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(TAKEN)
        and name not in left
        and not variables.is_secret(name)
        and is_unicode(value)  # others come from the process that starts the job
    }
    return {**kept, variables.CONFIG: variables.NO_FILE}


@dataclass(frozen=True)
class Jobs:
    """All jobs of a user.

    Args:
        path: the folder; made when the first job comes.
    """

    path: Path

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Within: nobody else changes a state.

        Raises:
            UserError: somebody has for `LOCK_S`, or the folder cannot be written to.
        """
        from filelock import FileLock, Timeout

        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            with FileLock(self.path / "lock", timeout=LOCK_S, mode=MODE):
                yield
        except Timeout:
            raise UserError(f"{self.path}/lock is held by another process for {LOCK_S:g} s"
                            ) from None  # fmt: skip

    def folder(self, number: int) -> Path:
        return self.path / str(number)

    def log(self, number: int) -> Path:
        """What the run prints."""
        return self.folder(number) / "log"

    def numbers(self) -> list[int]:
        """Of all jobs, the oldest first."""
        return numbers(self.path)

    def job(self, number: int) -> Job:
        """Raises `UserError` for a number that no job has."""
        if not is_regular(self.folder(number) / STATE.name):
            last = [str(n) for n in self.numbers()[-5:]]
            hint = nearest(str(number), last) if last else "; none was submitted"
            raise UserError(f"there is no job {number} in {self.path}{hint}")
        return JOB.read(self.folder(number))

    def number(self, word: str) -> int:
        """Return the number of a job, by its number or its name: of several of a name the last.

        Raises:
            UserError: no job has this name.
        """
        if word.isdecimal() and len(word) < 10 and int(word) > 0:
            return int(word)
        names = {self.job(number).name: number for number in self.numbers()}
        if word not in names:
            known = [name for name in names if name is not None]
            hint = nearest(word, known) if known else "; none has a name"
            raise UserError(f"{word!r} is no number or name of a job{hint}")
        return names[word]

    def state(self, number: int) -> State:
        return STATE.read(self.folder(number))

    def change(self, number: int, **values: Any) -> State:
        """Another state; within `locked`."""
        status = values.get("status")
        before = self.state(number)
        if status is not None and status != before.status:
            values.setdefault("since", time.time())
        after = before.model_copy(update=values)
        STATE.write(self.folder(number), State.model_validate(after.model_dump()))
        return after

    def add(self, **asked: Any) -> Job:
        """A new job, at the end of the queue.

        Args:
            asked: of `Job`, without what is known here.

        Raises:
            UserError: the queue is full.
        """
        with self.locked():
            waiting = [n for n in self.numbers() if self.state(n).status in WAITING]
            if len(waiting) >= MOST_QUEUED:
                raise UserError(f"{len(waiting):,} jobs are waiting; stop some, or wait")
            number = max(filter(None, (number_of(p) for p in self.path.iterdir())), default=0) + 1
            asked["out"] = asked["out"].replace("{id}", str(number))
            known = {
                "id": number, "host": socket.gethostname(), "user": getpass.getuser(),
                "submitted": time.time(), "environ": taken(),
            }  # fmt: skip
            folder = self.folder(number)
            job = checked(Job, {**known, **asked}, folder / JOB.name)  # a path need not be Unicode
            folder.mkdir(mode=FOLDER_MODE)
            JOB.write(folder, job)
            STATE.write(folder, State(status="queued", since=time.time()))
            return job


def check_here(job: Job) -> None:
    """Raises `UserError` for a job of another machine or user, whose processes are not here."""
    if job.on == "local" and job.host != socket.gethostname():
        raise UserError(f"job {job.id} is of {job.host}, this is {socket.gethostname()}: go there")
    if job.user != getpass.getuser():
        raise UserError(f"job {job.id} is of user {job.user}; you are {getpass.getuser()}")


def waited(job: Job) -> str:
    """Say that a job has waited for longer than it may."""
    return f"waited for longer than {job.wait:g} s (--wait-at-most)"


def clear(out: Path) -> None:
    """Remove what is left of a run that was killed before it had a ``run.json``."""
    if not (out / "run.json").exists():
        shutil.rmtree(out / "plan", ignore_errors=True)
        (out / ".lock").unlink(missing_ok=True)


def begun(words: Sequence[str], out: str) -> list[str]:
    """The words of ``dualml run`` that begin a run in ``out``."""
    return ["run", *words, "--out", out]


def resumed(words: Sequence[str], out: str) -> list[str]:
    """Those that go on with it."""
    kept = [word for word in words if word in ("--no-report", "--no-find", "--insecure")]
    for option in ("--hosts", "--lang"):
        if option in words:
            at = words.index(option)
            kept += words[at : at + 2]
    return ["run", "--resume", out, *kept]


def arguments(words: Sequence[str], out: str) -> list[str]:
    """Those of now."""
    there = (Path(out) / "run.json").exists()
    return resumed(words, out) if there else begun(words, out)
