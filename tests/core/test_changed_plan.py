"""A plan that was changed after freezing is neither judged nor shown, unless forced."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command import TOML, dualml

from dualml.experiment.store.plan import ORDER, plan_folder
from dualml.experiment.store.tensors import WEIGHTS

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("ran")
    (base / "tiny.toml").write_text(TOML)
    words = ("run", base / "tiny.toml", "--backend", "numpy", "--no-report", "--out", base / "out")
    assert dualml(*words).returncode == 0
    return base / "out"


@pytest.fixture
def folder(finished_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "out"))


def change_weight(folder: Path) -> None:
    weights = WEIGHTS.read(plan_folder(folder))
    next(iter(weights.values())).flat[0] += 1e-6
    WEIGHTS.write(plan_folder(folder), weights)


def change_order(folder: Path) -> None:
    path = plan_folder(folder) / ORDER
    with np.load(path) as packed:
        lists = {name: packed[name][::-1] for name in packed.files}
    np.savez(path, **lists)


def change_experiment(folder: Path) -> None:
    path = plan_folder(folder) / "plan.json"
    path.write_text(path.read_text().replace('"lr": 0.05', '"lr": 0.04'))


def change_hash(folder: Path) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "plan_hash": "0" * 64}))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_weight, "the plan was changed after it was made: weights"),
        (change_order, "the plan was changed after it was made: order"),
        (change_experiment, "the plan was changed after it was made: experiment"),
        (change_hash, "run.json's 000000000000"),
    ],
)
def test_a_changed_plan_is_noticed(folder: Path, change: object, reason: str) -> None:
    change(folder)  # type: ignore[operator]
    verdicts = (folder / "parity.json").read_bytes()
    for command in ("parity", "report"):
        done = dualml(command, folder)
        assert done.returncode == 2
        assert reason in done.stderr
        assert done.stderr.endswith("; --force reads it anyway\n")
        assert done.stderr.count("\n") == 1
    assert not (folder / "report.html").exists()
    assert dualml("parity", folder, "--force").returncode == 0
    assert (folder / "parity.json").read_bytes() == verdicts
    assert dualml("report", folder, "--force").returncode == 0
    assert "What is shown may not be what ran: " in (folder / "report.md").read_text("utf-8")
    assert dualml("find", folder).returncode == 2


def test_a_plan_that_was_not_changed_is_shown_without_a_word(folder: Path) -> None:
    assert dualml("parity", folder).returncode == 0
    assert dualml("report", folder).returncode == 0
    assert "may not be what ran" not in (folder / "report.md").read_text("utf-8")
