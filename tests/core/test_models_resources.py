"""Memory and disk that a comparison of a large model needs are checked before its first step."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dualml.common.errors import TrialError, UserError
from dualml.launch.supervise import GroupResult
from dualml.parity.models import resources, side_processes, worker
from dualml.parity.models.partners import Tensor
from dualml.parity.models.resources import check_resources, estimate_size
from dualml.parity.models.sides import FRAMEWORKS

GB = 10**9
#: A billion weights, and a buffer that no optimizer changes.
TENSORS = [Tensor("w", (1000, 1000, 1000)), Tensor("running_mean", (1000,), False)]
Usage = namedtuple("Usage", "total used free")


def job(optimizer: Any = None, loss: Any = "cross_entropy", steps: int = 1) -> dict[str, Any]:
    side = {"optimizer": optimizer, "loss": loss}
    return {"sides": {"a": side}, "steps": steps, "draws": 3}


@pytest.mark.parametrize(
    ("asked", "memory", "disk"),
    [
        (job(loss="none"), 4, 2 * 8),
        (job(), 8, 2 * 12),
        (job({"rule": {"name": "sgd", "lr": 0.1}}), 8, 2 * 12),
        (job({"rule": {"name": "adam", "lr": 0.1}}), 16, 2 * 20),
        (job({"module": "mine", "file": None, "name": "optimizer"}), 16, 2 * 20),
        (job({"rule": {"name": "adam", "lr": 0.1}}, steps=2), 16, 2 * 36 + 3 * 12),
    ],
)
def test_the_shapes_say_what_is_taken(asked: dict[str, Any], memory: int, disk: int) -> None:
    size = estimate_size(TENSORS, asked)
    assert size.parameters == 10**9 + 1000
    assert round((size.memory - resources.FRAMEWORK_BYTES) / GB) == memory
    assert round(size.disk / GB) == disk


def test_a_disk_that_is_too_small_is_told_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "free_memory", lambda: 100 * GB)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(99 * GB, 69 * GB, 30 * GB))
    check_resources(estimate_size(TENSORS, job()), tmp_path)
    with pytest.raises(
        UserError, match=r"1,000,001,000 parameters.* 40\.0 GB.* 30\.0 GB; .*folder="
    ):
        check_resources(
            estimate_size(TENSORS, job({"rule": {"name": "adam", "lr": 0.1}})), tmp_path
        )


def test_a_memory_that_is_too_small_is_told_with_both_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(999 * GB, 0, 999 * GB))
    monkeypatch.setattr(resources, "free_memory", lambda: 6 * GB)  # besides the model
    check_resources(estimate_size(TENSORS, job()), tmp_path)
    with pytest.raises(UserError, match=r"at least 16\.5 GB of memory, and 10\.0 GB are free"):
        check_resources(
            estimate_size(TENSORS, job({"rule": {"name": "adam", "lr": 0.1}})), tmp_path
        )


def test_small_models_run_at_once_and_large_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "free_memory", lambda: 100 * GB)
    small = [Tensor("w", (1 << 20,))]
    assert estimate_size(small, job()).fits_twice()
    assert not estimate_size(TENSORS, job()).fits_twice()
    monkeypatch.setattr(resources, "free_memory", lambda: GB)
    assert not estimate_size(small, job()).fits_twice()


def test_the_second_side_waits_for_what_the_first_says(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="size did not come"):
        worker.wait_for_size(tmp_path, 0.01)
    for together in (True, False):
        (tmp_path / resources.SIZE).write_text(json.dumps({"together": together}))
        assert worker.wait_for_size(tmp_path, 1.0)["together"] is together


def test_a_side_that_is_killed_is_told_with_what_would_fit(tmp_path: Path) -> None:
    said = side_processes.describe_failure(
        GroupResult(-signal.SIGKILL, None, 1), tmp_path, FRAMEWORKS, 60.0
    )
    assert said.startswith("mindspore was ended by SIGKILL, as the system does when memory runs")
    assert "loss='none'" in said
    assert "memory" not in side_processes.describe_failure(
        GroupResult(-signal.SIGSEGV, None, 0), tmp_path, FRAMEWORKS, 60
    )


def test_a_side_that_runs_alone_uses_the_threads_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    told: list[int] = []
    backend: Any = SimpleNamespace(set_threads=told.append)
    worker.use_threads(backend, 0)
    assert told == []
    worker.use_threads(backend, 3)
    assert (told, os.environ["OMP_NUM_THREADS"]) == ([3], "3")
