"""The run folder: made, locked to its plan, updated after every trial, resumed."""

from __future__ import annotations

import contextlib
import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dualml
from dualml.errors import UserError
from dualml.experiment.plan import Plan
from dualml.experiment.saved import restore, save
from dualml.files import read_json, write_json
from dualml.machine import git_revision

FORMAT = 1
LOCK = ".lock"


@contextlib.contextmanager
def in_use(path: Path) -> Iterator[None]:
    """Hold a run folder for this process; the system lets go of it when the process ends.

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


class RunFolder:
    """``run.json`` and the folders of the trials.

    Attributes:
        path: the folder.
        run: the content of ``run.json``.
    """

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self.path, self.run = path, run

    @classmethod
    def create(
        cls, path: Path, plan: Plan, backends: list[str], lang: str, options: dict[str, Any]
    ) -> RunFolder:
        """A new folder with the plan in it.

        Raises:
            UserError: the folder is not empty or cannot be written.
        """
        check_free(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            save(plan, path / "plan")
        except OSError as error:
            shutil.rmtree(path / "plan", ignore_errors=True)
            raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
        experiment = plan.experiment
        ranks = {name: arm.world_size for name, arm in experiment.arms.items()}
        trials: list[dict[str, Any]] = [
            {
                "arm": arm,
                "backend": backend,
                "seed": seed,
                "status": "interrupted",
                "reason": "not started",
                "wall_s": None,
                "train_s": None,
                "final_loss": None,
                "train_accuracy": None,
                "test_accuracy": None,
                "updates": None,
                "sample_gradients": None,
                "peak_memory_mb": None,
                "plan_hash": plan.hash,
                "how": {},
                **({"world_size": ranks[arm]} if ranks[arm] > 1 else {}),
            }
            for arm in experiment.arms
            for seed in experiment.seeds_of(arm)
            for backend in backends
        ]
        folder = cls(
            path,
            {
                "format": FORMAT,
                "dualml": dualml.__version__,
                "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "git": git_revision(),
                "name": experiment.name,
                "experiment": experiment.describe(),
                "lang": lang,
                "options": options,
                "data": plan.data,
                "plan_hash": plan.hash,
                "plan_parts": plan.parts,
                "environment": {},
                "trials": trials,
            },
        )
        folder.write()
        return folder

    @classmethod
    def open(cls, path: Path) -> tuple[RunFolder, Plan]:
        """An existing folder and its plan.

        Raises:
            UserError: no run folder, one of a newer version, or one whose plan was changed.
        """
        run = read_run(path)
        plan = restore(path / "plan")
        if plan.hash != run.get("plan_hash"):
            raise UserError(
                f"{path}: the plan's hash {plan.hash[:12]} is not run.json's "
                f"{str(run.get('plan_hash'))[:12]}; this folder cannot be resumed"
            )
        return cls(path, run), plan

    def write(self) -> None:
        write_json(self.path / "run.json", self.run)

    def trial_folder(self, trial: dict[str, Any]) -> Path:
        arm, backend, seed = str(trial["arm"]), str(trial["backend"]), int(trial["seed"])
        return self.path / "trials" / arm / backend / f"seed{seed}"

    def pending(self) -> list[dict[str, Any]]:
        """Trials that have not ended: interrupted ones go on, failed ones are tried again."""
        return [t for t in self.run["trials"] if t["status"] in ("interrupted", "failed")]


def check_free(path: Path) -> None:
    """Raises `UserError` unless ``path`` is absent or an empty folder."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file; choose another --out")
    try:
        there = path.is_dir() and any(path.iterdir())
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if there:
        resumable = (path / "run.json").is_file()
        hint = f", or continue it with --resume {path}" if resumable else ""
        raise UserError(f"{path} is not empty; choose another --out{hint}")


NEEDED = {"name": str, "experiment": dict, "options": dict, "lang": str, "data": dict,
          "plan_hash": str, "environment": dict, "trials": list}  # fmt: skip


def read_run(path: Path) -> dict[str, Any]:
    """``run.json`` of a folder.

    Raises:
        UserError: not a run folder, damaged, or written by a newer version.
    """
    try:
        run = read_json(path / "run.json")
        form = run["format"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} is not a run folder: it has no readable run.json") from None
    if not isinstance(form, int) or form < 1:
        raise UserError(f"{path} is not a run folder: run.json has the format {form!r}")
    if form > FORMAT:
        raise UserError(
            f"{path} was written by a newer dualml (format {form}, this one reads "
            f"{FORMAT}); update dualml"
        )
    assert isinstance(run, dict)
    lacking = [key for key, kind in NEEDED.items() if not isinstance(run.get(key), kind)]
    if lacking:
        raise UserError(f"{path}: run.json is damaged: {', '.join(lacking)} missing or wrong")
    return run
