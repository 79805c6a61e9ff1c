"""Weights & Biases: one run per trial, on disk, to be synchronised later or never."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.experiment.store.records import Curve
from dualml.experiment.store.run import Trial
from dualml.report.export.base import TARGETS, ExportJob, require_library
from dualml.report.export.trial_log import (
    points,
    rank_curves,
    trial_name,
    trial_results,
    trial_settings,
    trial_verdict,
)


@TARGETS.register("wandb", 50)
def write(job: ExportJob) -> str:
    """Log settings, metrics by update, results and verdict, and return the folder. Unless the job
    is online, nothing leaves the machine, and ``WANDB_ERROR_REPORTING=false`` is set in the
    environment of this process. Raise `UserError` if wandb is missing or fails, or if the requested
    folder is not empty."""
    require_library("wandb", "wandb")
    if not job.online:
        os.environ["WANDB_ERROR_REPORTING"] = "false"  # read when it is imported
    import wandb

    with job.folder() as out:
        try:
            for trial in job.trials:
                log(wandb, job, trial, out)
        except wandb.Error as error:
            raise UserError(f"wandb: {error}") from None
    return str(out)


def log(wandb: Any, job: ExportJob, trial: Trial, out: Path) -> None:
    """Log one trial with the library, the module ``wandb``, below the folder ``out``."""
    run = job.run
    its = wandb.init(
        project=str(run.meta.get("name")),
        group=run.folders[0].name,
        job_type=trial.backend,
        name=trial_name(trial),
        dir=str(out),
        config=trial_settings(run, trial),
        tags=[trial.arm, trial.backend],
        settings=wandb.Settings(
            mode="online" if job.online else "offline",
            silent=not job.online,
            console="off",
            save_code=False,
            disable_git=True,
            x_disable_meta=True,
            x_disable_stats=True,
        ),
    )
    for step, values in by_step(rank_curves(trial.folder, trial.world_size)).items():
        its.log(values, step=step)
    its.summary.update(trial_results(trial))
    its.summary.update(
        {
            "status": trial.status,
            "reason": trial.reason,
            "verdict": trial_verdict(run, trial),
            "plan_hash": run.meta.get("plan_hash"),
        }
    )
    its.finish(exit_code=0 if trial.ok else 1)


def by_step(curves: Mapping[str, Curve]) -> dict[int, dict[str, float]]:
    """Return update → metric → recorded value, ascending by update, because wandb accepts no
    earlier step."""
    rows: dict[int, dict[str, float]] = {}
    for name, curve in curves.items():
        for step, value, _ in points(curve, curves):
            rows.setdefault(step, {})[name] = value
    return dict(sorted(rows.items()))
