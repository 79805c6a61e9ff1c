"""``dualml run --resume DIR --world-size N``: trials that resume with another number of ranks."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import dualml, start, strict
from safetensors.numpy import load_file

from dualml.common.errors import UserError
from dualml.experiment.elastic import unresizable_reason, with_ranks
from dualml.experiment.load import load
from dualml.experiment.store.checkpoint import Progress, load_checkpoint, save_checkpoint
from dualml.experiment.store.plan import plan_folder, restore_plan
from dualml.experiment.store.resizing import check_replicas, load_checkpoints

TOML = """
name = "elastic"
model = "softmax"
title = { en = "Elastic", zh = "弹性" }
data = { name = "digits", train = 203, test = 20 }
evaluation = { train_samples = 20, per_epoch = 8, early = [2, 4, 6] }
[arms.whole]
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
epochs = 30
[arms.ring]
world_size = 2
optimizer = { name = "adam", lr = 0.01 }
aggregation = { strategy = "ring" }
batch_size = 20
epochs = 30
[arms.zero]
world_size = 2
optimizer = { name = "adam", lr = 0.01 }
zero = 2
batch_size = 20
epochs = 30
[arms.dealt]
world_size = 2
optimizer = { name = "adam", lr = 0.01 }
batch_size = 20
epochs = 30
partition = { name = "dirichlet_labels", alpha = 0.5 }
"""
REFUSED = {
    "aggregation.compress=fp16": "compress = fp16 keeps an error on every rank",
    "aggregation.reduce=mean": "reduce = mean depends on the number of ranks",
    "aggregation.of=parameters": "parameters of their own",
    "aggregation.strategy=parameter_server_async": "parameter_server_async is another rule",
}


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    (tmp_path / "elastic.toml").write_text(TOML)
    return tmp_path / "elastic.toml"


def interrupted(lab: Path, out: Path, arm: str, epochs: int = 4000) -> Path:
    """Interrupt the two ranks of an arm after the same checkpoint and return the trial's folder."""
    place = out / "trials" / arm / "numpy" / "seed0"
    words = (
        "run",
        lab,
        "--backend",
        "numpy",
        "--arm",
        arm,
        "--out",
        out,
        "--set",
        f"arms.{arm}.epochs={epochs}",
    )
    for _ in range(5):  # the signal may come between two ranks' checkpoints
        interrupt_when(words, lambda: len(readable_checkpoints(place, 2)) == 2)
        if readable_checkpoints(place, 2):
            return place
        words = ("run", "--resume", out)
    pytest.fail("no two checkpoints of one update")


def readable_checkpoints(place: Path, ranks: int) -> list[Any]:
    """Return what `loaded_checkpoints` finds while ranks are writing."""
    with contextlib.suppress(UserError):
        return load_checkpoints(place, ranks)
    return []


def interrupt_when(words: tuple[Any, ...], due: Callable[[], bool]) -> None:
    """Interrupt a run as soon as ``due`` is true."""
    process = start(*words, "--no-report", "--no-find", env={"DUALML_CHECKPOINT_S": "0.05"})
    deadline = time.monotonic() + 180
    while not due():
        assert process.poll() is None, process.communicate(timeout=10)
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error


def fake(place: Path, steps: tuple[int, ...], shift: float = 0.0) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for rank, step in enumerate(steps):
        weights = {"w": np.ones(3, np.float32) * (1 + shift * rank)}
        save_checkpoint(place, rank, Progress(step), weights, {"m": {"w": np.ones(3)}}, {})


def test_ranks_that_stand_elsewhere_start_again(tmp_path: Path) -> None:
    fake(tmp_path, (4, 4))
    assert len(load_checkpoints(tmp_path, 2)) == 2
    assert load_checkpoints(tmp_path, 3) == []
    fake(tmp_path, (4, 6))
    assert load_checkpoints(tmp_path, 2) == []


def test_ranks_that_hold_different_weights_are_refused(tmp_path: Path) -> None:
    fake(tmp_path, (4, 4, 4), shift=1e-7)
    check_replicas(tmp_path, load_checkpoints(tmp_path, 3))
    fake(tmp_path, (4, 4, 4), shift=1e-3)
    with pytest.raises(UserError, match=r"w of rank 1 is 1\.0e-03 apart from that of rank 0"):
        check_replicas(tmp_path, load_checkpoints(tmp_path, 3))


@pytest.mark.parametrize(("setting", "told"), REFUSED.items())
def test_what_depends_on_the_number_of_ranks_is_refused(lab: Path, setting: str, told: str) -> None:
    arm = load(str(lab), overrides=[f"arms.ring.{setting}"]).arms["ring"]
    assert told in unresizable_reason(arm, 3)


def test_what_cannot_be_split_again_is_refused() -> None:
    found = {**load("lab2", arms=["all"]).arms, **load("lab4", arms=["all"]).arms}
    told = {unresizable_reason(arm, 3) for arm in found.values() if arm.world_size > 1}
    for words in ("split by a plan", "times collectives", "keeps an error"):
        assert any(words in why for why in told), words


def test_each_update_keeps_its_batch(lab: Path, tmp_path: Path) -> None:
    done = dualml(
        "run",
        lab,
        "--backend",
        "numpy",
        "--out",
        tmp_path / "o",
        "--no-report",
        "--set",
        "arms.ring.updates=2",
        "--set",
        "arms.dealt.updates=2",
        "--arm",
        "ring",
        "--arm",
        "dealt",
    )
    assert done.returncode in (0, 3), done.stderr
    plan = restore_plan(plan_folder(tmp_path / "o"))
    for name in ("ring", "dealt"):
        before = plan.batch_sampler(plan.experiment.arms[name], 0)
        for ranks in (3, 5):
            now = with_ranks(plan, name, ranks)
            feed = now.batch_sampler(now.experiment.arms[name], 0)
            assert now.hash == plan.hash
            assert feed.per_epoch == before.per_epoch
            for step in range(1, before.per_epoch + 1):
                assert (feed.batch(step) == before.batch(step)).all()
                sizes = [len(part) for part in feed.parts(step)]
                assert len(sizes) == ranks
                assert max(sizes) - min(sizes) <= 1


@pytest.mark.whole
@pytest.mark.parametrize("arm", ["ring", "zero", "dealt"])
@pytest.mark.parametrize("ranks", [3])
def test_a_trial_goes_on_with_other_ranks(lab: Path, tmp_path: Path, arm: str, ranks: int) -> None:
    place = interrupted(lab, tmp_path / "o", arm)
    found = load_checkpoint(place, 0)
    assert found is not None
    step = found[0].step
    assert step
    run = strict((tmp_path / "o/run.json").read_text())
    assert run["trials"][0]["status"] == "interrupted"
    words = ("run", "--resume", tmp_path / "o", "--world-size", ranks)

    def has_newer() -> bool:
        loaded = readable_checkpoints(place, ranks)
        return bool(loaded) and loaded[0][0].step > step

    interrupt_when(words, has_newer)
    for _ in range(5):
        if readable_checkpoints(place, ranks):
            break
        interrupt_when(words[:3], has_newer)  # as many ranks as last time
    (trial,) = strict((tmp_path / "o/run.json").read_text())["trials"]
    assert trial["resized"] == [
        {"step": step, "before": 2, "after": ranks, "rule": "planned_batches"}
    ]
    loaded = load_checkpoints(place, ranks)
    assert len(loaded) == ranks
    assert loaded[0][0].step > step
    check_replicas(place, loaded)
    compare(lab, tmp_path, arm, loaded[0])


def compare(lab: Path, tmp_path: Path, arm: str, loaded: Any) -> None:
    """Compare the weights with a trial that made all of its updates with two ranks."""
    progress, weights, *_ = loaded
    words = ("--set", f"arms.{arm}.updates={progress.step}", "--arm", arm, "--backend", "numpy")
    done = dualml("run", lab, *words, "--out", tmp_path / "whole", "--no-report", "--no-find")
    assert done.returncode == 0, done.stderr
    want = load_file(tmp_path / f"whole/trials/{arm}/numpy/seed0/weights.safetensors")
    for name, array in weights.items():
        scale = np.abs(want[name]).max()
        assert np.abs(array - want[name]).max() <= 1e-9 * scale, name


@pytest.mark.whole
def test_it_ends_and_says_so(lab: Path, tmp_path: Path) -> None:
    interrupted(lab, tmp_path / "o", "ring", epochs=120)
    done = dualml("run", "--resume", tmp_path / "o", "--world-size", 3, "--no-find", "--json")
    assert done.returncode == 0, done.stderr
    assert "with 3 ranks in place of 2; each update keeps its batch" in done.stderr
    (trial,) = strict(done.stdout)["trials"]
    assert (trial["status"], trial["world_size"], trial["samples"]) == ("ok", 3, [])
    assert [change["after"] for change in trial["resized"]] == [3]
    assert (tmp_path / "o/report.html").exists()


@pytest.mark.whole
def test_what_cannot_be_asked_for(lab: Path, tmp_path: Path) -> None:
    place = interrupted(lab, tmp_path / "o", "ring")
    for words, told in {
        ("--world-size", "1"): "one rank has no one to share with",
        ("--world-size", "0"): "--world-size must be from 1",
        ("--world-size", "100000"): "--world-size must be from 1",
        ("--rendezvous", "auto"): "leave out --rendezvous",
    }.items():
        done = dualml("run", "--resume", tmp_path / "o", *words)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
    assert load_checkpoint(place, 1) is not None
    job = json.loads((place / "job.json").read_text())
    assert job.get("resized", 0) == 0
