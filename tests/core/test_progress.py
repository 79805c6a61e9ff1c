"""The progress of a run on standard error without a terminal, and the data it refers to."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command import dualml
from rich.console import Console

from dualml.common.words import Messages
from dualml.experiment.load import load
from dualml.experiment.small_data import small_data_values
from dualml.experiment.store.manifest import TrialRecord
from dualml.runner.session.progress import LogTicker, ProgressLines, RemainingTime, show_activity
from dualml.runner.session.trials import estimate_work


def trial(arm: str, status: str = "interrupted") -> TrialRecord:
    return TrialRecord.fresh((arm, "numpy", 0), "0" * 64, 1).with_values(status=status, reason=None)


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> ProgressLines:
    work = {(arm, "numpy", 0): each for arm, each in (("gd", 11.0), ("sgd", 3.0), ("adam", 4.0))}
    return ProgressLines(work, Messages("en"))


def test_a_trial_announces_itself_once_and_says_how_far_it_is(
    lines: ProgressLines, capsys: pytest.CaptureFixture[str]
) -> None:
    lines(trial("gd"), {"phase": "start"})
    lines(trial("gd"), {"phase": "start"})  # the worker's own
    lines(trial("gd"), {"phase": "train", "done": 1, "total": 4})
    lines.since -= 5.0  # seconds ago
    assert lines.line() == "gd · numpy · seed 0: training; 1 of 4, about 15 s to go"
    lines.remaining.since -= 11.0
    lines(trial("gd", "failed"), {"phase": "end"})
    lines(trial("sgd"), {"phase": "start"})
    assert "1 of 3 trials ended, about 7 s to go in all" in lines.line()
    shown = capsys.readouterr().err.splitlines()
    assert shown == [
        "gd · numpy · seed 0: started (1 of 3)",
        "✗ gd · numpy · seed 0: failed: None",
        "sgd · numpy · seed 0: started (2 of 3)",
    ]


def test_what_is_left_is_told_from_the_same_backend() -> None:
    keys = [(arm, backend, 0) for arm in ("one", "two") for backend in ("quick", "slow")]
    left = RemainingTime(dict(zip(keys, (1.0, 1.0, 4.0, 4.0), strict=True)))
    assert left.seconds_left() is None
    for key, seconds in zip(keys[:2], (2.0, 30.0), strict=True):
        left.start(key)
        left.since -= seconds
        left.end(key)
        if key is keys[0]:  # nothing is known of the slow one yet
            assert left.seconds_left() == pytest.approx(2.0 * (1 + 4 + 4), abs=0.1)
    assert left.seconds_left() == pytest.approx(8.0 + 120.0, abs=0.1)
    left.start(keys[2])
    left.since -= 100.0  # longer than it was told
    assert left.seconds_left() == pytest.approx(120.0, abs=0.1)
    left.end(keys[2])
    left.start(keys[3])
    left.end(keys[3])
    assert left.seconds_left() == 0.0


def test_ranks_that_share_cores_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualml.runner.session.trials.usable_cores", lambda: 2)
    arms = {"one": SimpleNamespace(world_size=1), "eight": SimpleNamespace(world_size=8)}
    monkeypatch.setattr("dualml.runner.session.trials.count_gradients", lambda plan, arm, seed: 0)
    plan: Any = SimpleNamespace(experiment=SimpleNamespace(arms=arms))
    assert list(estimate_work(plan, [("one", "numpy", 0), ("eight", "numpy", 0)]).values()) == [
        1.0,
        4.0,
    ]


def test_a_line_comes_when_nothing_else_does() -> None:
    text = io.StringIO()
    with LogTicker(Console(file=text), lambda: "still here", every=0.2) as ticker:
        for _ in range(3):
            time.sleep(0.1)
            ticker.print("news")
        assert "still" not in text.getvalue()
        time.sleep(0.5)
    assert text.getvalue().count("still here") == 2
    time.sleep(0.3)
    assert text.getvalue().count("still here") == 2


def test_what_goes_on_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LogTicker.__init__, "__defaults__", (0.1,))
    with show_activity("writing") as update:
        update("reading")
        time.sleep(0.25)
    assert capsys.readouterr().err.startswith("reading (0 s)")


SMALL = """
name = "few"
model = "softmax"
title = { en = "Few", zh = "少" }
data = { name = "digits", train = 256 }
parity = { draws = 2, horizon = 50 }
evaluation = { train_samples = 50, early = [] }
[arms.passes]
optimizer = { name = "sgd", lr = 0.1 }
epochs = 0.5
[arms.updates]
optimizer = { name = "sgd", lr = 0.1 }
updates = 7
[arms.whole]
optimizer = { name = "gd", lr = 0.1 }
batch_size = 0
epochs = 3
[small]
epochs_multiplier = 6
evaluation = { per_epoch = 0.5 }
[quick]
arms.passes = { epochs = 0.25 }
"""


def test_little_data_are_passed_over_more_often(tmp_path: Path) -> None:
    file = tmp_path / "few.toml"
    file.write_text(SMALL, "utf-8")

    def epochs(**options: object) -> list[float]:
        arms = load(str(file), arms=["all"], **options).arms  # type: ignore[arg-type]
        return [arms[name].epochs for name in ("passes", "updates", "whole")]

    assert epochs() == [0.5, 3, 3]
    assert epochs(small=True) == [3, 3, 3]  # told in updates, or of one update each: as they were
    assert epochs(small=True, quick=True) == [1.5, 3, 3]
    assert epochs(small=True, overrides=["arms.passes.epochs=1"]) == [1, 3, 3]
    out = tmp_path / "out"
    done = dualml("run", file, "--backend", "numpy", "--out", out, "--arm", "passes")
    assert done.returncode == 0, done.stderr
    assert "there are 6 for each epoch" in done.stderr
    assert "Arm passes makes 12 updates; with mnist (60,000 samples) it makes 469" in done.stderr
    page = (out / "report.md").read_text("utf-8")
    assert "with mnist (60,000 samples) it makes 469" in page


def test_without_it_nothing_is_said() -> None:
    experiment = load("lab1").describe()
    assert small_data_values(experiment, {"name": "mnist", "train": 60000}) is None
    assert "epochs_times" not in experiment
    more = load("lab1", small=True).describe()
    assert small_data_values(more, {"name": "digits", "train": 1437}) == {
        "name": "digits",
        "train": 1437,
        "times": 14.0,
        "arm": "sgd",
        "updates": 966,
        "wanted": "mnist",
        "full": 2814,
        "full_train": 60000,
    }


def test_short_trials_come_first_and_those_of_several_ranks_last(tmp_path: Path) -> None:
    file = tmp_path / "lengths.toml"
    arm = "[arms.{}]\noptimizer = {{ name = 'sgd', lr = 0.1 }}\nupdates = {}\n"
    arms = (
        arm.format("long", 30),
        arm.format("pair", 2) + "world_size = 2\n",
        arm.format("short", 3),
    )
    file.write_text(SMALL.split("[arms")[0] + "".join(arms), "utf-8")
    done = dualml("run", file, "--backend", "numpy", "--out", tmp_path / "out", "--no-report")
    assert done.returncode == 0, done.stderr
    started = [line.split(" ·")[0] for line in done.stderr.splitlines() if ": started (" in line]
    assert started == ["short", "long", "pair"]
    rows = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))["trials"]
    assert [row["arm"] for row in rows] == ["long", "pair", "short"]  # of record: as they stand
