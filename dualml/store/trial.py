"""A trial's folder: ``job.json``, what its workers are asked to do, and ``result.json``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from dualml.store.agreement import Agreement
from dualml.store.best import Best
from dualml.store.classification import Classification
from dualml.store.jsonfile import Count, JsonFile, Name, Number, Record
from dualml.store.manifest import (
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
    """What every worker is asked: whose trial, on what, and how its ranks find one another."""

    arm: Name
    backend: Name
    seed: Count
    device: str
    threads: Count
    cores: Count
    rendezvous: str
    key: str
    check: bool


class Job(WorkerJob):
    """To run a trial.

    Attributes:
        resized: ranks that it goes on with in place of its arm's; 0: as many as those.
    """

    plan_hash: str
    checkpoint_every: Number
    resized: Count = 0


class Result(Record):
    """What rank 0 reports of a trial that ended well.

    ``data``: traced update → SHA-256 of its batch; ``apart``: traced update → how far each rank's
    weights are from rank 0's, relative to their size.
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
    best: Best | None = None
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
    agreement: Agreement | None = None
    clock: str = ""


BOARD = "board"
#: In the run folder: logs of ranks that were started over SSH.
HOSTS = "hosts"
LOG = re.compile(r"rank(\d{1,9})\.log")
JOB = JsonFile("job.json", Job)
RESULT = JsonFile("result.json", Result)


def trial_folder(run: Path, key: Key) -> Path:
    arm, backend, seed = key
    return run / "trials" / arm / backend / f"seed{seed}"


def run_folder(trial: Path) -> Path:
    """The run that a trial's folder is in."""
    return trial.parents[3]


def log_path(trial: Path, rank: int) -> Path:
    """What a process of the trial prints."""
    return trial / f"rank{rank}.log"


def board_path(trial: Path) -> Path:
    """Where the ranks of a trial find one another."""
    return trial / BOARD


def logs_in(folder: Path) -> list[Path]:
    """What processes of a trial have printed, or of a run those that were started over SSH; by
    rank."""
    ranks = [(LOG.fullmatch(path.name), path) for path in _files(folder)]
    return [path for _, path in sorted((int(m[1]), path) for m, path in ranks if m)]


def ranks_files(run: Path) -> Iterator[Path]:
    """Everything that ranks of a run have written: records, logs, measurements."""
    return run.glob("trials/*/*/*/rank*")


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
