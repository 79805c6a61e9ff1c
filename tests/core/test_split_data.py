"""Only ranks of the first stage read samples, and only ranks of the last stage read labels."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command import run

from dualml.algorithms.model import model
from dualml.experiment.data import load as load_data
from dualml.experiment.data import partial, sources
from dualml.experiment.data.partial import (
    in_memory_bytes,
    is_placeholder,
    load_partial,
    make_placeholder,
    select_samples,
)
from dualml.experiment.data.registry import DATASETS
from dualml.experiment.freeze import freeze
from dualml.experiment.load import load
from dualml.experiment.samples import load_samples
from dualml.experiment.split import Split
from dualml.parallel.split.plan import SplitPlan

DIGITS = load_data("digits", explicit=True)
TOML = """
name = "tiny-data"
model = "mlp"
title = { en = "Tiny", zh = "小" }
data = { name = "digits", train = 60, test = 20 }
evaluation = { train_samples = 10, early = [] }
limits = { collective = 20 }
parity = { draws = 1, horizon = 3, trace = [1, 2, 3] }
[arms.one]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 8
updates = 3
[arms.pipe]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 8
updates = 3
world_size = 3
split = { micro_batches = 2 }
[arms.cube]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 8
updates = 3
world_size = 8
split = { data = 2, tensor = 2, cut = ["fc3"] }
[arms.server]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 8
updates = 3
world_size = 2
split = { place = [0, 1, 0] }
"""
#: Bytes of training and test samples (28 × 28 float32), and of their labels (8 bytes each).
X, Y = (60 + 20) * 784 * 4, (60 + 20) * 8


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "tiny-data.toml"
    path.write_text(TOML)
    return path


def bytes_read(out: Path) -> dict[str, list[tuple[int, int]]]:
    """Return arm → bytes of samples and of labels read by each rank."""
    trials = json.loads((out / "run.json").read_text())["trials"]
    return {
        trial["arm"]: [(int(r["sample_bytes"]), int(r["label_bytes"])) for r in trial["memory"]]
        for trial in trials
        if trial.get("memory")
    }


EXPECTED = {
    "pipe": [(X, 0), (0, 0), (0, Y)],
    "cube": [(X, 0), (X, 0), (0, Y), (0, Y)] * 2,
    "server": [(X, Y), (0, 0)],
}


def test_bytes_that_each_rank_has_read(lab: Path, tmp_path: Path) -> None:
    """Each rank reads the bytes of the plan, and the split computes what the whole model does."""
    code, told = run(lab, tmp_path / "out")
    assert code == 0, told
    assert bytes_read(tmp_path / "out") == EXPECTED
    judged = json.loads((tmp_path / "out" / "parity.json").read_text())["serial"]
    assert {one["arm"]: one["verdict"] for one in judged} == dict.fromkeys(EXPECTED, "equal")


def test_ranks_that_read_everything_are_seen() -> None:
    """Ranks that read everything are noticed: if `SplitPlan.reads` were always true, each of three
    ranks would read all bytes."""
    plan = Split(micro_batches=2).plan(model("mlp"), 3)
    whole = load_samples(freeze(load_text(), DIGITS))

    def samples_read(reads: Any) -> list[tuple[int, int]]:
        kept = [whole.omit(samples=not x, labels=not y) for x, y in map(reads, range(3))]
        return [samples.memory_bytes for samples in kept]

    assert samples_read(plan.reads) == EXPECTED["pipe"]
    assert samples_read(lambda rank: (True, True)) == [(X, Y)] * 3


def load_text() -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny-data.toml"
        path.write_text(TOML)
        return load(str(path))


def plan_of(ranks: int, **settings: Any) -> SplitPlan:
    return Split(**settings).plan(model("mlp"), ranks)


@pytest.mark.parametrize(
    ("plan", "samples", "labels"),
    [
        (plan_of(2, tensor=2), [0, 1], [0, 1]),
        (plan_of(4, stages=4), [0], [3]),
        (plan_of(3, place=[0, 1, 0], trainers=2, micro_batches=2), [0], [0]),
        (plan_of(3, engine="rpc"), [0], [0]),
        (plan_of(2, engine="rpc", place=[0, 1, 0]), [1], [1]),
        (plan_of(2, engine="devices", devices=["cpu:0", "cpu:1"], data=2), [0, 1], [0, 1]),
    ],
)
def test_who_reads(plan: SplitPlan, samples: list[int], labels: list[int]) -> None:
    reads = [plan.reads(rank) for rank in range(plan.world_size)]
    assert [rank for rank, (x, _) in enumerate(reads) if x] == samples
    assert [rank for rank, (_, y) in enumerate(reads) if y] == labels
    assert plan.scorer in labels


@pytest.mark.parametrize(("samples", "labels"), [(True, False), (False, True), (False, False)])
def test_files_that_are_not_needed_are_not_opened(
    samples: bool, labels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def read(folder: Path, file: Any, remedy: str) -> np.ndarray:
        opened.append(file.name)
        return np.zeros(file.shape, np.uint8)

    monkeypatch.setattr(sources, "read_idx_file", read)
    place = SimpleNamespace(folder=Path("/nowhere"), kind="env")
    monkeypatch.setattr(partial, "locate", lambda info: place)
    data = load_partial({"name": "mnist", "sha256": "0"}, samples=samples, labels=labels)
    assert ["images" in name for name in opened] == [True] * 2 * samples + [False] * 2 * labels
    info = DATASETS["mnist"]
    assert data.train_x.shape == (info.train, 28, 28)
    assert data.test_y.shape == (info.test,)
    sizes = (in_memory_bytes(data.train_x), in_memory_bytes(data.train_y))
    assert sizes == (info.train * 784 * samples, info.train * 8 * labels)


def test_what_is_left_out_takes_no_memory_and_is_noticed() -> None:
    x, y = make_placeholder((1000, 1, 28, 28), np.float32), make_placeholder((1000,), np.int64)
    assert (x.base is not None, x.strides, in_memory_bytes(x)) == (True, (0, 0, 0, 0), 0)
    assert np.isnan(x[3] + 1).all()
    assert y.max() == -1
    assert is_placeholder(select_samples(x, np.arange(7)))
    assert select_samples(x, np.arange(7)).shape == (7, 1, 28, 28)
    assert not is_placeholder(np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 0
    with pytest.raises(ValueError, match="negative"):
        np.bincount(y)


def test_what_was_read_is_put_together() -> None:
    whole = load_samples(freeze(load_text(), DIGITS))
    x, y = whole.omit(samples=False, labels=True), whole.omit(samples=True, labels=False)
    both = x.fill_from(y)
    assert both.memory_bytes == whole.memory_bytes == (X, Y)
    assert both.train_x is whole.train_x
    assert both.test_y is whole.test_y
