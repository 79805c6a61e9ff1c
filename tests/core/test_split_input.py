"""User errors about splits: a one-line message with the numbers and the remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import dualml, run

from dualml.common.errors import UserError
from dualml.experiment.data import load as load_data
from dualml.experiment.freeze import freeze
from dualml.experiment.load import load

DIGITS = load_data("digits", explicit=True)

TOML = """
name = "tiny-split"
model = "mlp"
title = { en = "Tiny", zh = "小" }
data = { name = "digits", train = 30, test = 20 }
evaluation = { train_samples = 10, early = [] }
limits = { collective = 5 }
parity = { draws = 1, horizon = 3, trace = [1, 2, 3] }
[arms.one]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 7
updates = 3
[arms.pipe]
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 7
updates = 3
world_size = 2
split = { micro_batches = 4 }
[arms.vit]
model = "vit"
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 7
updates = 3
world_size = 2
split = { tensor = 2 }
[arms.lenet]
model = "lenet"
optimizer = { name = "sgd", lr = 0.05 }
batch_size = 7
updates = 3
world_size = 2
split = { tensor = 2 }
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "tiny-split.toml"
    path.write_text(TOML)
    return path


def sets(arm: str, *words: str) -> list[str]:
    return [part for word in words for part in ("--set", f"arms.{arm}.{word}")]


DEADLOCK = json.dumps([["0F0", "0B0", "0F1", "0B1"], [".", "1F1", "1B1", "1F0", "1B0"]])
EARLY = json.dumps([["0F0", "0B0"], ["1F0", "1B0"]])
SHORT = json.dumps([["0F0", ".", ".", "0B0"], [".", "1F0", "1B0", "."]])
STRANGE = json.dumps([["0F0", "0X0"], ["1F0", "1B0"]])

#: Arm, changed settings, and the error.
WRONG: list[tuple[str, list[str], str]] = [
    ("pipe", ["split.stages=9"], "arms.pipe: 9 stages are too many for mlp: it can be cut at 5 "
     "places (fc1, tanh1, fc2, tanh2, fc3); use at most 6 stages"),
    ("pipe", ["split.cut=['fc9']"], "mlp has no layer 'fc9'; did you mean 'fc"),
    ("pipe", ["split.cut=['flatten']"], "'flatten' is the first layer"),
    ("pipe", ["split.cut=['fc3', 'fc2']", "split.place=[0, 1, 0]"],
     "layers must follow the model's order, each once: ['fc3', 'fc2']"),
    ("pipe", ["split.place=[0, 2]"], "every rank a stage; received [0, 2]"),
    ("pipe", ["split.place=[0, -1]"], "arms.pipe.split.place.1: Input should be greater than or"),
    ("vit", ["split.tensor=1", "split.cut=['attention']"],
     "arms.vit: cut: 'attention' lies inside a residual connection; the nearest place to cut is "
     "'branch1'"),
    ("vit", ["world_size=3", "split.tensor=3"],
     "attention has 4 heads, which 3 ranks cannot share equally; use tensor = 2, 4, or"),
    ("vit", ["world_size=3", "split.tensor=3", "split.layers={qkv='column'}"],
     "attention has 4 heads, which 3 ranks cannot share equally"),
    ("lenet", ["world_size=4", "split.tensor=4"],
     "arms.lenet: conv1 has 6 output channels, which 4 ranks cannot share equally; use "
     "tensor = 2, 3, 6"),
    ("lenet", ["split.layers={fc2='row'}"], "fc2: a row layer takes the output of a column layer"),
    ("lenet", ["split.layers={fc2='diagonal'}"], "'diagonal' is none of column, row, whole"),
    ("lenet", ["split.layers={pool1='column'}"], "a MaxPool2d cannot be split inside"),
    ("pipe", [f"split.grid={DEADLOCK}", "split.micro_batches=2"],
     "arms.pipe: this schedule deadlocks: rank 0 waits with 0B0 for 1B0 of rank 1, which waits "
     "with 1F1 for 0F1 of rank 0, where it comes after 0B0"),
    ("pipe", [f"split.grid={EARLY}", "split.micro_batches=1"],
     "rank 1, tick 0: 1F0 needs 0F0, which rank 0 does in tick 0; put idle ticks (.) before it"),
    ("pipe", [f"split.grid={SHORT}"], "0F1 is missing on the row of rank 0 and 11 more"),
    ("pipe", [f"split.grid={STRANGE}", "split.micro_batches=1"], "'0X0' is no action: write stage"),
    ("pipe", ["world_size=1"],
     "arms.pipe.world_size: split needs world_size >= 2: one rank has the whole"),
    ("pipe", ["aggregation.strategy=ring"], "leave out kind, partition and aggregation"),
    ("pipe", ["partition={name='round_robin'}"], "leave out kind, partition and aggregation"),
    ("pipe", ["batch_size=0", "optimizer={name='gd', lr=0.1}"], "split needs a batch_size"),
    ("pipe", ["split.schedule=1f2b"], "unknown schedule '1f2b'; did you mean '1f1b'?"),
    ("pipe", ["split.schedule=gpip"], "unknown schedule 'gpip'; did you mean 'gpipe'?"),
    ("pipe", ["split.stages=4", "split.schedule=interleaved", "split.micro_batches=3"],
     "interleaved needs a multiple of 2 micro-batches, one for each of 2 ranks; received 3: use 2 "
     "or 4"),
    ("pipe", ["split.layers={fc1='column'}"], "that needs tensor >= 2"),
    ("pipe", ["world_size=3", "split.tensor=2"],
     "a mesh of data 1 × tensor 2 does not divide 3 ranks: world_size must be data × pipeline × "
     "tensor"),
    ("pipe", ["split.trainers=2"],
     "trainers = 2 with one server are 3 ranks, without data and tensor; received world_size = 2"),
    ("pipe", ["world_size=3", "split.trainers=2", "split.micro_batches=3"],
     "micro_batches = 3 cannot be shared by 2 trainers; use a multiple of 2"),
    ("pipe", ["split.arrival=asynchronous"], "arrival = asynchronous needs trainers >= 2"),
    ("pipe", ["split.micro_batches=0"], "arms.pipe.split.micro_batches"),
    ("pipe", ["split.micro_batches=1.5"], "valid integer"),
    ("pipe", ["split.tensor=0"], "arms.pipe.split.tensor"),
    ("pipe", ["split.microbatches=2"], "did you mean 'micro_batches'"),
    ("pipe", ["split.balance=weight"], "arms.pipe.split.balance"),
    ("pipe", ["split=7"], "arms.pipe.split"),
    ("pipe", ["world_size=40"], "arms.pipe: 40 stages are too many for mlp"),
]  # fmt: skip


@pytest.mark.parametrize(("arm", "words", "message"), WRONG)
def test_one_line_with_the_numbers_and_the_remedy(
    lab: Path, arm: str, words: list[str], message: str
) -> None:
    with pytest.raises(UserError) as refused:
        freeze(load(str(lab), overrides=sets(arm, *words)[1::2]), DIGITS)
    text = str(refused.value)
    assert message in text
    assert "\n" not in text
    assert "Value error" not in text


@pytest.mark.parametrize(("arm", "words", "message"), [WRONG[i] for i in (0, 6, 8, 9, 13, 17, 25)])
def test_the_command_line_says_it_and_starts_nothing(
    lab: Path, tmp_path: Path, arm: str, words: list[str], message: str
) -> None:
    out = tmp_path / "out"
    more = ["--arm", arm, *sets(arm, *words)]
    done = dualml("run", lab, "--backend", "numpy", "--out", out, *more)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (out / "run.json").exists()


def test_world_size_on_the_command_line_is_checked_too(lab: Path, tmp_path: Path) -> None:
    words = ["--arm", "lenet", "--world-size", "3"]
    done = dualml("run", lab, "--backend", "numpy", "--out", tmp_path / "out", *words)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), done.stderr
    assert "does not divide 3 ranks" in done.stderr


def verdicts(out: Path) -> dict[str, Any]:
    return {c["arm"]: c["verdict"] for c in json.loads((out / "parity.json").read_text())["serial"]}


def test_micro_batches_that_do_not_divide_the_batch_are_fine(lab: Path, tmp_path: Path) -> None:
    """7 samples in 4 micro-batches, then the last 2 samples in 4: two of those are empty."""
    code, told = run(
        lab,
        tmp_path / "out",
        "--arm",
        "one",
        "--arm",
        "pipe",
        *sets("one", "updates=6"),
        *sets("pipe", "updates=6"),
    )
    assert code == 0, told
    assert verdicts(tmp_path / "out") == {"pipe": "equal"}


def test_more_micro_batches_than_samples_are_fine(lab: Path, tmp_path: Path) -> None:
    words = sets("pipe", "split.micro_batches=9", "split.schedule=gpipe")
    code, told = run(lab, tmp_path / "out", "--arm", "one", "--arm", "pipe", *words)
    assert code == 0, told
    assert verdicts(tmp_path / "out") == {"pipe": "equal"}
