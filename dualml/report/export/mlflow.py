"""MLflow: a run for the experiment, with one nested run per trial."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.experiment.store.report import report_path
from dualml.experiment.store.run import RunData, Trial
from dualml.report.export.base import TARGETS, ExportJob, require_library
from dualml.report.export.trial_log import (
    points,
    rank_curves,
    start_timestamp,
    trial_name,
    trial_results,
    trial_settings,
    trial_verdict,
)

VARIABLE = "MLFLOW_TRACKING_URI"
#: Limits of MLflow: metrics and settings per batch, and characters of a setting.
MAX_METRICS, MAX_SETTINGS, MAX_SETTING_CHARS = 1000, 100, 6000
STATUSES = {"ok": "FINISHED", "failed": "FAILED"}


@TARGETS.register("mlflow", 40)
def write(job: ExportJob) -> str:
    """Log settings, metrics by update, tags, and the report as an artifact, and return the store's
    address without credentials: the tracking server of the variable MLFLOW_TRACKING_URI, or without
    it a local database beside an artifact folder. Raise `UserError` if a library is missing, MLflow
    fails, the requested folder is not empty, or the job names a folder while the variable is
    set."""
    require_library("mlflow", "mlflow")
    if uri := os.environ.get(VARIABLE):
        if job.out is not None:
            raise UserError(f"{VARIABLE} says where to write; unset it, or leave out --out")
        log(job, uri)
        return hide_credentials(uri)
    require_library("sqlalchemy", "mlflow")
    with job.folder() as out:
        uri = f"sqlite:///{out}/mlflow.db"
        log(job, uri, out / "artifacts")
    return uri


def hide_credentials(text: str) -> str:
    """Return a text whose URLs have no user name and password.

    >>> hide_credentials("postgresql://me:secret@db/runs")
    'postgresql://…@db/runs'
    """
    return re.sub(r"(?<=://)[^/\s]*@", "…@", text)


def log(job: ExportJob, uri: str, artifacts: Path | None = None) -> None:
    """Log the run of a job to a store.

    Args:
        job: the export job.
        uri: address of the store.
        artifacts: where a new experiment keeps its files; the store's own place by default.

    Raises:
        UserError: MLflow does not support the store, cannot reach it, or refuses.
    """
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    logging.getLogger("mlflow").setLevel(logging.WARNING)  # it logs the creation of its tables
    try:
        log_all(job, MlflowClient(uri), artifacts)
    except MlflowException as error:
        raise UserError(hide_credentials(f"mlflow at {uri}: {error}")) from None


def log_all(job: ExportJob, client: Any, artifacts: Path | None) -> None:
    """Log the run as one MLflow run, with its report if there is one, and every trial whose records
    can be read as a run nested in it; the MLflow experiment of the run's name is made if it does
    not exist."""
    run = job.run
    name = str(run.meta.get("name"))
    known = client.get_experiment_by_name(name)
    place = None if artifacts is None else artifacts.as_uri()
    experiment = client.create_experiment(name, place) if known is None else known.experiment_id
    begin = round(1000 * start_timestamp(run.meta))
    tags = {"dualml": str(run.meta.get("dualml")), "plan_hash": str(run.meta.get("plan_hash"))}
    folder = run.folders[0]
    whole = client.create_run(experiment, begin, tags, folder.name).info.run_id
    if report_path(folder).is_file():
        client.log_artifact(whole, str(report_path(folder)))
    for trial in job.trials:
        tags["mlflow.parentRunId"] = whole
        log_trial(client, experiment, run, trial, tags, begin)
    client.set_terminated(whole)


def log_trial(
    client: Any, experiment: str, run: RunData, trial: Trial, tags: Mapping[str, str], begin: int
) -> None:
    """Log one trial as a run nested in the experiment's run.

    Args:
        client: the MLflow client.
        experiment: id of the experiment.
        run: the run.
        trial: the trial to log.
        tags: tags that all trials share.
        begin: milliseconds since 1970 at which the training seconds begin.
    """
    from mlflow.entities import Metric, Param

    tags = {**tags, "status": trial.status, "verdict": trial_verdict(run, trial) or ""}
    if trial.reason:
        tags["reason"] = trial.reason
    its = client.create_run(experiment, begin, tags, trial_name(trial)).info.run_id
    settings = [
        Param(key, str(value)[:MAX_SETTING_CHARS])
        for key, value in trial_settings(run, trial).items()
    ]
    for at in range(0, len(settings), MAX_SETTINGS):
        client.log_batch(its, params=settings[at : at + MAX_SETTINGS])
    curves = rank_curves(trial.folder, trial.world_size)
    metrics = [
        Metric(name, value, begin + round(1000 * seconds), step)
        for name, curve in curves.items()
        for step, value, seconds in points(curve, curves)
    ]
    end = begin + round(1000 * (trial.wall_s or 0.0))
    metrics += [
        Metric(key, value, end, 0)
        for key, value in trial_results(trial).items()
        if key not in curves
    ]
    for at in range(0, len(metrics), MAX_METRICS):
        client.log_batch(its, metrics=metrics[at : at + MAX_METRICS])
    client.set_terminated(its, STATUSES.get(trial.status, "KILLED"), end)
