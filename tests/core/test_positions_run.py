"""Whole runs with context parallelism on the reference, and the pages about them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command import DOCS, dualml, run

from dualml.algorithms.model import model
from dualml.experiment.arm import make_arm
from dualml.experiment.schema import Experiment
from dualml.experiment.store.load import load as load_run

PAGES = [DOCS / "sequence.md", DOCS / "sequence.zh.md"]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
SHARED = """
optimizer = { name = "adam", lr = 0.003 }
batch_size = 8
updates = 6
"""
ARMS = {
    "whole": "",
    "sequence": "world_size = 2\nsplit = { tensor = 2, sequence = true, regather = true }",
    "ring": "world_size = 2\nsplit = { context = 2 }",
    "ring-again": 'world_size = 2\nrecompute = "full"\nsplit = { context = 2, micro_batches = 2 }',
    "ring-pipe": 'world_size = 4\nsplit = { context = 2, cut = ["mlp_branch1"] }',
}
TOML = """
name = "positions"
model = "gpt"
sizes = { width = 16, blocks = 1, dropout = 0.1 }
title = { en = "Positions", zh = "位置" }
data = { name = "sentences", tokens = "characters", length = 16, train = 64, test = 16 }
evaluation = { per_epoch = 1, early = [], train_samples = 8 }
""" + "".join(f"[arms.{name}]\n{text}\n{SHARED}" for name, text in ARMS.items())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "positions.toml"
    path.write_text(TOML)
    return path


@pytest.fixture(scope="module")
def finished_run(
    lab: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("positions") / "out"
    code, summary = run(lab, out)
    assert code == 0
    return out, {trial["arm"]: trial for trial in summary["trials"]}


@pytest.mark.whole
def test_every_arm_is_the_whole_one(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, trials = finished_run
    losses = {arm: trial["final_loss"] for arm, trial in trials.items()}
    assert set(losses) == set(ARMS)
    for arm, loss in losses.items():
        assert loss == pytest.approx(losses["whole"], rel=1e-9), arm
    assert trials["sequence"]["how"]["reduce_scatter"].startswith("composed")
    assert "isend and irecv" in trials["ring"]["how"]
    assert load_run([out]).splits["ring"]["shared"] == "context"


@pytest.mark.whole
def test_the_report_names_the_ways(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, _ = finished_run
    assert dualml("report", out).returncode == 0
    text = (out / "report.md").read_text("utf-8")
    for words in ("positions in 2", "inside in 2, positions sharded", "Ring Attention with"):
        assert words in text, words


@pytest.mark.parametrize(
    ("arm", "change", "words"),
    [
        ("ring", "data.length=15", "15 positions do not make 4 chunks, two for each of 2 ranks"),
        ("sequence", "data.length=15", "15 positions do not make 2 ranks, equally long"),
        ("ring", "arms.ring.precision=bf16", "split.context = 2 attends in float32"),
        ("ring", "arms.ring.recompute=selective", "keeps no scores in the first place"),
        ("ring", "arms.ring.split.tensor=2", "either the positions or the layers"),
        ("ring", "arms.ring.split.context=0", "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_is_one_line(lab: Path, arm: str, change: str, words: str) -> None:
    done = dualml("run", lab, "--backend", "numpy", "--arm", arm, "--set", change)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", page.read_text("utf-8"), re.S)


@by_page
def test_the_experiment_of_the_page_is_one(page: Path) -> None:
    (text,) = blocks(page, "toml")
    table = tomllib.loads(text)
    Experiment.model_validate(table)
    spec = model(table["model"], length=table["data"]["length"], sizes=table["sizes"])
    for settings in table["arms"].values():
        arm = make_arm(**settings)
        assert arm.split is None or arm.split.plan(spec, arm.world_size).shared


@by_page
def test_the_command_prints_what_the_page_shows(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dualml.interface.cli.app import app

    (example,) = [b for b in blocks(page, "text") if b.startswith("$ dualml ")]
    words, dots, *shown = example.removeprefix("$ dualml ").splitlines()
    app(words.split(), standalone_mode=False)
    assert dots == "…"
    assert capsys.readouterr().out.splitlines()[-len(shown) :] == shown
