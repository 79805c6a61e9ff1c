"""A run folder in use: created, locked, bound to its plan, updated after every trial, resumed."""

from __future__ import annotations

import contextlib
import datetime
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.json_types import JsonMapping
from dualml.common.machine import git_revision
from dualml.common.version import __version__
from dualml.experiment.plan import Plan
from dualml.experiment.store.manifest import (
    RUN,
    DataRecord,
    Key,
    Options,
    RunRecord,
    TrialRecord,
    read_run,
)
from dualml.experiment.store.plan import plan_folder, restore_plan, save_plan
from dualml.experiment.store.trial import trial_folder

LOCK = ".lock"
#: Linux's list of all held locks, with the inode of each file.
LOCKS = Path("/proc/locks")


@contextlib.contextmanager
def lock_run_folder(path: Path) -> Iterator[None]:
    """Lock a run folder (file ``.lock``, made if needed) for this process inside a ``with`` block;
    the lock is released at its end, or by the system if the process ends.

    Raises:
        UserError: another process holds it, or it cannot be written to.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(f"{path} is in use by another dualml run; wait for it, or end it") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool | None:
    """Return whether a process of this machine, this one included, has locked a run folder; None if
    the system does not tell.

    The lock is not tried, because a run that starts at that moment would be refused.
    """
    try:
        number = str((path / LOCK).stat().st_ino)
        lines = LOCKS.read_text().splitlines()
    except FileNotFoundError:
        return False if LOCKS.exists() else None
    except OSError:
        return None
    return any(
        line.split()[1] == "FLOCK" and line.split()[-3].endswith(f":{number}") for line in lines
    )


class RunFolder:
    """A run in progress: ``run.json``, which `write` rewrites after a change.

    Attributes:
        path: the folder.
        trials: current records of the trials, by key.
    """

    def __init__(self, path: Path, run: RunRecord) -> None:
        self.path, self._run = path, run
        self.trials = {trial.key: trial for trial in run.trials}
        self._environment = dict(run.environment)

    @classmethod
    def create(
        cls, path: Path, plan: Plan, backends: Sequence[str], lang: str, options: Options
    ) -> RunFolder:
        """Create a run folder with the plan in it and ``run.json``, in which no trial has started.

        Args:
            backends: backends on which the arms run, as far as they allow it.
            lang: language of the run's texts, ``en`` or ``zh``.

        Raises:
            UserError: the folder is not empty or cannot be written.
        """
        check_free(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            save_plan(plan, plan_folder(path))
        except OSError as error:
            shutil.rmtree(plan_folder(path), ignore_errors=True)
            raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
        experiment = plan.experiment
        trials = [
            TrialRecord.fresh((name, backend, seed), plan.hash, arm.world_size)
            for name, arm in experiment.arms.items()
            for seed in experiment.seeds_of(name)
            for backend in experiment.backends_of(name, backends)
        ]
        run = RunRecord(
            dualml=__version__,
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            git=git_revision(),
            name=experiment.name,
            experiment=experiment.describe(),
            lang=lang,
            options=options,
            data=DataRecord.model_validate(plan.data),
            plan_hash=plan.hash,
            plan_parts=plan.parts,
            environment={},
            trials=trials,
        )
        folder = cls(path, run)
        folder.write()
        return folder

    @classmethod
    def open(cls, path: Path) -> tuple[RunFolder, Plan]:
        """Open an existing run folder, and return it with its plan.

        Raises:
            UserError: no run folder, one of a newer version, or one whose plan was changed.
        """
        run = read_run(path)
        return cls(path, run), restore_plan(plan_folder(path), run.plan_hash)

    @property
    def run(self) -> RunRecord:
        """Current content of ``run.json``."""
        return self._run.model_copy(
            update={"trials": list(self.trials.values()), "environment": self._environment}
        )

    def change(self, key: Key, **values: Any) -> TrialRecord:
        """Change fields of a trial's record in ``trials``, and return the new record; `write`
        stores it."""
        self.trials[key] = self.trials[key].with_values(**values)
        return self.trials[key]

    def set_environment(self, backend: str, environment: JsonMapping) -> None:
        """Set the environment of a backend in the record; `write` stores it."""
        self._environment[backend] = dict(environment)

    def write(self) -> None:
        """Write the manifest ``run.json`` completely or not at all."""
        RUN.write(self.path, self.run)

    def trial_folder(self, key: Key) -> Path:
        """Return the folder of the trial ``key`` in this run folder, which may not exist."""
        return trial_folder(self.path, key)

    def pending(self) -> list[TrialRecord]:
        """Return the trials still to run: interrupted ones, which include those not started, and
        failed ones, which are tried again."""
        return [t for t in self.trials.values() if t.status in ("interrupted", "failed")]


def check_free(path: Path, remedy: str = "") -> None:
    """Raise `UserError` unless ``path`` is missing or an empty folder.

    Args:
        remedy: advice for the error message; by default another ``--out``, or to resume.
    """
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file; {remedy or 'choose another --out'}")
    try:
        there = path.is_dir() and any(path.iterdir())
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if there:
        resumable = (path / RUN.name).is_file()
        hint = f", or continue it with --resume {path}" if resumable else ""
        raise UserError(f"{path} is not empty; {remedy or f'choose another --out{hint}'}")
