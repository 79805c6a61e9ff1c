"""The run folder: made, locked to its plan, updated after every trial, resumed."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import dualml
from dualml.errors import UserError
from dualml.experiment.plan import Plan, restore, save
from dualml.files import read_json, write_json
from dualml.machine import git_revision

FORMAT = 1


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
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise UserError(
                    f"{path} is not empty; choose another --out, or continue it with "
                    f"--resume {path}"
                )
            save(plan, path / "plan")
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
        experiment = plan.experiment
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
            }
            for arm in experiment.arms
            for seed in experiment.seeds
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


def read_run(path: Path) -> dict[str, Any]:
    """``run.json`` of a folder.

    Raises:
        UserError: not a run folder, or written by a newer version.
    """
    try:
        run = read_json(path / "run.json")
        form = run["format"]
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        raise UserError(f"{path} is not a run folder: it has no readable run.json") from None
    if not isinstance(form, int) or form > FORMAT:
        raise UserError(
            f"{path} was written by a newer dualml (format {form}, this one reads "
            f"{FORMAT}); update dualml"
        )
    assert isinstance(run, dict)
    return run
