"""A recurrent state carried across batches, through an interruption and over ranks, as a user runs
it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from command import dualml, run, start, strict
from test_resume import wait_for_checkpoint

from dualml.common.words import Messages
from dualml.experiment.store.load import load
from dualml.report.topics import caveats

pytestmark = pytest.mark.whole

TOML = """
name = "tiny"
model = "rnn_lm"
title = { en = "Tiny", zh = "小" }
recurrent = { width = 6, hidden = 6, stateful = true }
[data]
name = "sentences"
words = 40
length = 4
train = 60
test = 10
[evaluation]
train_samples = 10
[arms.sgd]
optimizer = { name = "sgd", lr = 0.5 }
batch_size = 10
updates = 1500
[arms.server]
world_size = 2
optimizer = { name = "sgd", lr = 0.5 }
batch_size = 10
updates = 12
split = { cut = ["lstm", "decoder"], place = [0, 1, 0] }
[arms.alone]
optimizer = { name = "sgd", lr = 0.5 }
batch_size = 10
updates = 12
"""
TENSORS = ("weights.safetensors", "trace.safetensors")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TOML)
    return path


def test_an_interrupted_trial_goes_on_with_its_state(lab: Path, tmp_path: Path) -> None:
    run(lab, tmp_path / "whole", "--arm", "sgd")
    out = tmp_path / "cut"
    words = ("run", lab, "--backend", "numpy", "--out", out, "--no-report", "--arm", "sgd")
    process = start(*words, env={"DUALML_CHECKPOINT_S": "0.1"})
    wait_for_checkpoint(out / "trials" / "sgd" / "numpy" / "seed0", process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert strict((out / "run.json").read_text())["trials"][0]["status"] == "interrupted"
    done = dualml("run", "--resume", out, "--no-report")
    assert done.returncode == 0, done.stderr
    for name in TENSORS:
        a, b = (
            (tmp_path / where / "trials/sgd/numpy/seed0" / name).read_bytes()
            for where in ("whole", "cut")
        )
        assert a == b, name


def test_a_server_and_a_trainer_carry_the_state_of_one_rank(lab: Path, tmp_path: Path) -> None:
    run(lab, tmp_path / "out", "--arm", "server", "--arm", "alone")
    found = strict((tmp_path / "out" / "parity.json").read_text())["serial"]
    assert [(c["arm"], c["verdict"]) for c in found] == [("server", "equal")]
    said = [item.text for item in caveats.TOPIC.findings(load([tmp_path / "out"]), Messages("en"))]
    assert any(text.startswith("In alone and server the state goes on") for text in said) or any(
        text.startswith("In server and alone the state goes on") for text in said
    )
