"""Comparing two runs: equal, different, not comparable, and the sentences about it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command import dualml, run, strict

from dualml.common.distance import distance
from dualml.common.errors import UserError
from dualml.experiment.store.baseline import FOLDS, fold, write_baseline
from dualml.experiment.store.trial_comparison import TrialComparison
from dualml.parity.against import compare_runs, runs
from dualml.parity.against.matching import TrialMatch

TOML = """
name = "guard"
model = "softmax"
title = { en = "Guard", zh = "守卫" }
[data]
name = "digits"
train = 96
test = 32
[parity]
draws = 2
horizon = 6
share = 0
trace = [1, 2, 6]
[arms.plain]
optimizer = { name = "gd", lr = 0.1 }
batch_size = 0
updates = 4
[arms.momentum]
optimizer = { name = "sgd", lr = 0.05, momentum = 0.9 }
batch_size = 16
updates = 8
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return run folders: ``a``, ``wrong`` (learning rate 1 % too high) and ``ranks`` (one arm with
    two ranks)."""
    place = tmp_path_factory.mktemp("against")
    lab = place / "guard.toml"
    lab.write_text(TOML)
    run(lab, place / "a")
    wrong = "arms.momentum.optimizer.lr=0.0505"
    run(lab, place / "wrong", "--set", wrong)
    run(lab, place / "ranks", "--arm", "momentum", "--set", "arms.momentum.world_size=2")
    return place


def edited(folder: Path, copy: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return a copy of a folder with a changed ``run.json``."""
    shutil.copytree(folder, copy)
    content = json.loads((copy / "run.json").read_text())
    change(content)
    (copy / "run.json").write_text(json.dumps(content))
    return copy


def test_a_run_is_equal_to_itself(folder: Path) -> None:
    against = compare_runs(folder / "a", folder / "a")
    assert (against.verdict, against.passed) == ("equal", True)
    assert [pair.arm for pair in against.pairs] == ["plain", "momentum"]
    assert [pair.ratio for pair in against.pairs] == [0.0, 0.0]
    assert against.settings() == {}
    assert against.environment == ()


def test_a_wrong_rate_is_different_at_the_first_update(folder: Path) -> None:
    done = dualml("compare", folder / "a", folder / "wrong", "--json")
    assert done.returncode == 3
    told = strict(done.stdout)
    assert (told["kind"], told["format"], told["passed"]) == ("dualml-against", 1, False)
    plain, momentum = told["pairs"]
    assert (plain["verdict"], momentum["verdict"]) == ("equal", "different")
    first = momentum["first_divergence"]
    assert (first["step"], first["phase"]) == (1, "update")
    assert momentum["settings"] == [{"key": "optimizer.lr", "a": 0.05, "b": 0.0505}]
    assert "in 1 of 2 pairs B does not train what A trained" in told["text"]["en"]
    assert "optimizer.lr 0.05 → 0.0505" in told["text"]["zh"]


def test_two_ranks_are_equal_to_one(folder: Path) -> None:
    against = compare_runs(folder / "a", folder / "ranks", arms=["momentum"])
    assert against.passed
    assert 0 < (against.pairs[0].ratio or 0) < 10
    keys = [change.key for change in against.pairs[0].settings]
    assert "world_size" in keys
    assert set(keys) <= {"world_size", "dealt_to"}


def test_a_missing_arm_is_named(folder: Path) -> None:
    done = dualml("compare", folder / "a", folder / "ranks", "--lang", "zh")
    assert done.returncode == 2
    assert "plain（numpy，种子 0）" in done.stdout
    assert "B: 缺失" in done.stdout
    back = compare_runs(folder / "ranks", folder / "a")
    assert (back.verdict, back.unmet) == ("equal", ("plain",))


def test_arms_of_other_names_are_paired(folder: Path) -> None:
    against = compare_runs(folder / "a", folder / "a", pairs={"plain": "momentum"})
    assert [pair.arms for pair in against.pairs] == [("plain", "momentum")]
    # Not the same batches: that is a difference of what was asked, and seen as such.
    first = against.pairs[0].first_divergence
    assert (first["step"], first["phase"]) == (1, "data")


def test_a_failed_trial_is_named(folder: Path, tmp_path: Path) -> None:
    def fail(content: dict[str, Any]) -> None:
        content["trials"][0] |= {"status": "failed", "reason": "loss is not finite"}

    failed = edited(folder / "a", tmp_path / "failed", fail)
    against = compare_runs(folder / "a", failed)
    assert (against.verdict, against.passed) == ("not comparable", False)
    assert "B: failed; loss is not finite" in against.paragraph()
    done = dualml("baseline", failed, tmp_path / "base")
    assert done.returncode == 2
    assert "not every trial ended well: plain/numpy/0 (failed)" in done.stderr


def test_other_data_and_other_samples_are_not_compared(folder: Path, tmp_path: Path) -> None:
    def data(content: dict[str, Any]) -> None:
        content["plan_parts"]["data"] = "0" * 64

    def samples(content: dict[str, Any]) -> None:
        content["trials"][1]["samples_sha256"] = "0" * 64

    other = compare_runs(folder / "a", edited(folder / "a", tmp_path / "data", data))
    assert [pair.reason for pair in other.pairs] == ["other_data"] * 2
    other = compare_runs(folder / "a", edited(folder / "a", tmp_path / "samples", samples))
    assert [pair.reason for pair in other.pairs] == ["inside_envelope", "other_samples"]


def test_a_baseline_judges_as_its_run_does(folder: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    done = dualml("baseline", folder / "a", base, "--json")
    assert done.returncode == 0, done.stderr
    assert 0 < strict(done.stdout)["bytes"] < 60_000
    same = compare_runs(base, folder / "a")
    assert same.passed
    assert [pair.ratio for pair in same.pairs] == [0.0, 0.0]
    whole, short = (compare_runs(a, folder / "wrong").pairs[1] for a in (folder / "a", base))
    firsts = [pair.first_divergence for pair in (whole, short)]
    places = [(first["step"], first["phase"], first["tensor"]) for first in firsts]
    assert places[0] == places[1]
    assert firsts[1]["distance"] == pytest.approx(firsts[0]["distance"], rel=0.5)
    content = json.loads((base / "baseline.json").read_text())
    content["starts"] = dict.fromkeys(content["starts"], "0" * 64)
    (base / "baseline.json").write_text(json.dumps(content))
    assert {pair.reason for pair in compare_runs(base, folder / "a").pairs} == {"other_weights"}
    content["folds"] = 32
    (base / "baseline.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="make the baseline again"):
        compare_runs(base, folder / "a")


def test_half_a_baseline_is_none(folder: Path, tmp_path: Path) -> None:
    run, base = tmp_path / "run", tmp_path / "base"
    shutil.copytree(folder / "a", run)
    next(run.rglob("trace.safetensors")).unlink()
    done = dualml("baseline", run, base)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert not base.exists()
    base.mkdir()
    (base / "mine").touch()
    done = dualml("baseline", folder / "a", base)
    assert done.stderr == f"dualml: {base} is not empty; name another folder\n"
    assert (base / "mine").exists()


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("3", "a table is expected; received int"),
        ("null", "a table is expected; received NoneType"),
        ("[]", "a table is expected; received list"),
        ('{"metric": 3}', "metric is no name"),
        ('{"metric": "loss", "step": "x"}', "a number is expected"),
    ],
)
def test_a_baseline_of_an_odd_record_is_one_line(
    folder: Path, tmp_path: Path, record: str, said: str
) -> None:
    run, base = tmp_path / "run", tmp_path / "base"
    shutil.copytree(folder / "a", run)
    path = next(run.rglob("rank0.jsonl"))
    number = len(path.read_text().splitlines()) + 1
    with path.open("a") as file:
        file.write(f"{record}\n")
    with pytest.raises(UserError, match=f"line {number} is not a record: {said}"):
        write_baseline(run, base, {})
    assert not base.exists()


def test_folds_keep_distances() -> None:
    draw = np.random.default_rng(1)
    for off in (1e-6, 1e-3, 0.5):
        errors = []
        for size in range(2000, 2020):
            a = draw.normal(size=size).astype(np.float32)
            b = (a * (1 + off * draw.normal(size=size))).astype(np.float32)
            errors.append(distance(fold(a), fold(b)) / distance(a, b) - 1)
        assert abs(np.mean(errors)) < 0.1
        assert np.std(errors) < 0.25
    a = draw.normal(size=(50, 40)).astype(np.float32)
    b = a.copy()
    b[49, 39] += 0.01
    assert distance(fold(a), fold(a)) == 0
    assert distance(fold(a), fold(b)) == pytest.approx(0.01 / np.linalg.norm(a), rel=0.3)
    assert np.array_equal(fold(a[0]), a[0])
    assert fold(a).shape == (FOLDS,)
    # The same on every machine and with every NumPy: baselines are kept for years.
    assert fold(np.arange(100.0))[:4].tolist() == PINNED


#: The first sums of 0, 1, …, 99.
PINNED = [0.0, -99.0, -77.0, -27.0]


def test_limits_fail_and_say_which(folder: Path) -> None:
    done = dualml("compare", folder / "a", folder / "a", "--slower", "0.5", "--more-memory", "0.5")
    assert done.returncode == 3
    assert "an update takes 1 times as long, allowed are 0.5." in done.stdout
    assert "1 times the memory, allowed are 0.5." in done.stdout
    kept = compare_runs(folder / "a", folder / "a", slower=1.5, more_memory=1.5)
    assert kept.passed
    assert kept.pairs[0].costs["time"].ratio == 1


def test_only_what_is_asked_is_judged(folder: Path) -> None:
    against = compare_runs(folder / "a", folder / "wrong", metrics=["loss"], arms=["momentum"])
    assert set(against.pairs[0].phases) == {"data", "loss"}
    first = against.pairs[0].first_divergence
    assert (first["step"], first["phase"]) == (2, "loss")
    assert compare_runs(folder / "a", folder / "wrong", margin=1e9).passed


def test_a_seed_that_only_the_second_run_has_is_refused(folder: Path, tmp_path: Path) -> None:
    def seed(content: dict[str, Any]) -> None:
        content["trials"].append({**content["trials"][0], "seed": 5})

    more = edited(folder / "a", tmp_path / "more", seed)
    with pytest.raises(UserError, match="a has no seed 5; there are 0"):
        compare_runs(folder / "a", more, seeds=[0, 5])


def test_what_is_chaotic_is_settled_over_the_seeds() -> None:
    def trial(accuracy: float) -> SimpleNamespace:
        return SimpleNamespace(status="ok", reason="", test_accuracy=accuracy)

    names = [TrialMatch(("x", "y"), ("numpy", "numpy"), seed) for seed in range(3)]
    sides: Any = tuple(
        SimpleNamespace(trials={(arm, "numpy", seed): trial(0.9 + off) for seed in range(3)})
        for arm, off in (("x", 0.0), ("y", 0.001))
    )
    found: Any = [
        (n, TrialComparison(sides=("", ""), verdict="not comparable", reason="chaotic"))
        for n in names
    ]
    settled = runs._resolve_by_seeds(sides, found)
    assert {judged.verdict for _, judged in settled} == {"statistically equal"}


def test_pages_are_written(folder: Path, tmp_path: Path) -> None:
    html, text = tmp_path / "new" / "page.html", tmp_path / "page.md"
    done = dualml("compare", folder / "a", folder / "wrong", "--html", html, "--markdown", text)
    assert done.returncode == 3
    page = html.read_text("utf-8")
    assert page.count('<svg class="fig"') == 1
    assert 'class="verdict bad"' in page
    lines = text.read_text("utf-8").splitlines()
    assert "**Different: in 1 of 2 pairs B does not train what A trained.**" in lines
    assert sum(line.startswith("|") for line in lines) == 4
    assert "figures/" not in text.read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--arm", "momntum"], "has no arm 'momntum'; did you mean 'momentum'?"),
        (["--pair", "plain"], "--pair takes NAME_IN_A=NAME_IN_B; received 'plain'"),
        (["--backend", "torch"], "has no backend 'torch'"),
        (["--backend", "numpy="], "--backend takes NAME_IN_A=NAME_IN_B"),
        (["--seed", "7"], "no seed 7; there are 0"),
        (["--metric", "los"], "unknown metric 'los'; did you mean 'loss'?"),
        (["--margin", "0"], "margin must be a finite number above 0; received 0"),
        (["--slower", "nan"], "slower must be a finite number; received nan"),
        (["--more-memory", "-1"], "more_memory must be a finite number above 0; received -1"),
        (["--steps", "2"], "--steps: of models;"),
        (["--eval"], "--eval: of models;"),
        (["--html", "/dev/null/x"], "/dev/null/x: cannot be written"),
    ],
)
def test_wrong_words_are_refused(words: list[str], said: str, folder: Path) -> None:
    done = dualml("compare", folder / "a", folder / "a", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_other_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    done = dualml("compare", folder / "a", tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path} is not a run folder: it has no run.json" in done.stderr
    newer = edited(folder / "a", tmp_path / "newer", lambda content: content.update(format=9))
    with pytest.raises(UserError, match=r"run\.json: written by a newer dualml \(format 9"):
        compare_runs(folder / "a", newer)
    base = tmp_path / "base"
    assert dualml("baseline", folder / "a", base).returncode == 0
    assert "is not empty" in dualml("baseline", folder / "a", base).stderr
    assert "is a baseline" in dualml("baseline", base, tmp_path / "again").stderr
    assert dualml("compare", base, folder / "a", "--pair", "plain=x").returncode == 2
