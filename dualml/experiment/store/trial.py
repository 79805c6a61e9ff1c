"""A trial's folder: ``job.json``, the task of its workers, and ``result.json``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from dualml.experiment.store.agreement import AgreementRecord
from dualml.experiment.store.best import BestRecord
from dualml.experiment.store.classification import Classification
from dualml.experiment.store.jsonfile import Count, JsonFile, Name, Number, Record
from dualml.experiment.store.manifest import (
    DeviceMemory,
    Environment,
    Key,
    LossScale,
    OffloadTraffic,
    RankMemory,
    RankSamples,
    Staleness,
)

StepKey = Annotated[str, Field(pattern=r"^\d{1,18}$")]


class WorkerJob(Record):
    """Fields that every worker's job has: the trial, the device, and how its ranks find one
    another."""

    arm: Name
    backend: Name
    seed: Count
    device: str
    threads: Count
    cores: Count
    rendezvous: str
    key: str
    check: bool


class TrialJob(WorkerJob):
    """Job of a worker that runs a trial.

    Attributes:
        resized: number of ranks to resume with instead of the arm's; 0: the arm's own.
    """

    plan_hash: str
    checkpoint_every: Number
    resized: Count = 0


class TrialResult(Record):
    """Result of a trial that ended well, as rank 0 reports it.

    ``data``: traced update → SHA-256 of its batch; ``apart``: traced update → distance of each
    rank's weights from rank 0's, relative to their size.
    """

    status: str
    reason: str | None
    world_size: Count = 1
    how: dict[str, str] = {}
    staleness: Staleness | None = None
    memory: list[RankMemory] = []
    measurements: Count | None = None
    train_s: Number | None = None
    compile_s: Number | None = None
    updates: Count | None = None
    sample_gradients: Count | None = None
    samples_sha256: str = ""
    samples: list[RankSamples] = []
    step_s: list[Number] = []
    sent_bytes: Number | None = None
    final_loss: Number | None = None
    train_accuracy: Number | None = None
    test_loss: Number | None = None
    test_accuracy: Number | None = None
    class_accuracy: list[Number | None] = []
    confusion: list[list[Count]] = []
    classification: Classification | None = None
    best: BestRecord | None = None
    test_perplexity: Number | None = None
    data: dict[StepKey, str] = {}
    apart: dict[StepKey, list[Number | None]] = {}
    trace_steps: list[Count] = []
    environment: Environment = {}
    peak_memory_mb: Number | None = None
    spent: dict[str, Number] = {}
    loss_scale: LossScale | None = None
    device_memory: list[DeviceMemory] = []
    offload: list[OffloadTraffic] = []
    agreement: AgreementRecord | None = None
    clock: str = ""


BOARD = "board"
#: Folder in the run folder for logs of ranks started over SSH.
HOSTS = "hosts"
LOG = re.compile(r"rank(\d{1,9})\.log")
JOB = JsonFile("job.json", TrialJob)
RESULT = JsonFile("result.json", TrialResult)


def trial_folder(run: Path, key: Key) -> Path:
    """Return the folder of the trial ``key`` (arm, backend, seed) in a run folder, which may not
    exist."""
    arm, backend, seed = key
    return run / "trials" / arm / backend / f"seed{seed}"


def run_folder_of(trial: Path) -> Path:
    """Return the run folder that contains a trial's folder."""
    return trial.parents[3]


def log_path(trial: Path, rank: int) -> Path:
    """Return the path of the file with the output of a rank's process, in the folder of a trial."""
    return trial / f"rank{rank}.log"


def rendezvous_path(trial: Path) -> Path:
    """Return the folder, in a trial's folder, through which its ranks find one another."""
    return trial / BOARD


def find_logs(folder: Path) -> list[Path]:
    """Return the output files (``rankR.log``) in the folder of a trial, or in that of a run's
    processes started over SSH, sorted by rank; empty if the folder cannot be read."""
    ranks = [(LOG.fullmatch(path.name), path) for path in _files(folder)]
    return [path for _, path in sorted((int(m[1]), path) for m, path in ranks if m)]


def iter_rank_paths(run: Path) -> Iterator[Path]:
    """Yield all files and folders of a run's trials whose names begin with ``rank``: records, logs,
    measurements of ranks; in no order."""
    return run.glob("trials/*/*/*/rank*")


def _files(folder: Path) -> list[Path]:
    """Return the files and folders in a folder; empty if it cannot be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []
