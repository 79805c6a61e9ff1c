"""Several ranks in the report: run folders that lack arms, trials, times or a backend."""

from __future__ import annotations

import re
from pathlib import Path

import fake_ranks
import pytest
from page_parts import findings_by_key
from test_report_page import Page, rows

from dualml.experiment.store.load import load
from dualml.report import render

pytestmark = pytest.mark.whole

SUBSETS = [
    ["micro-n2"],
    ["micro-n4", "single"],
    ["single"],
    ["all-reduce-n2"],
    ["slow-ring"],
    ["slow-ring", "base-ring"],
    ["async-free"],
    ["single", "sum"],
]


@pytest.mark.parametrize("arms", SUBSETS, ids=",".join)
@pytest.mark.parametrize("costs", [True, False])
def test_any_subset_makes_a_page(tmp_path: Path, arms: list[str], costs: bool) -> None:
    backends = ["torch"] if costs else ["numpy", "torch"]
    folder = fake_ranks.make_run(
        tmp_path, arms=arms, backends=backends, costs=costs, parity=not costs
    )
    text = render([folder])[0].read_text("utf-8")
    Page(text)
    for name in re.findall(r'<table id="table-([^"]+)"', text):
        assert rows(text, name), name  # no table without a row
    if arms == ["slow-ring"]:
        assert "bottleneck.no_base" in findings_by_key(folder)
    trained = [a for a in arms if "micro" not in a]
    assert ("<code>sgd</code>" in text) == bool(trained)


@pytest.mark.parametrize("status", ["failed", "unsupported"])
def test_everything_failed(tmp_path: Path, status: str) -> None:
    def fail(run: dict) -> None:
        keys = ("final_loss", "train_s", "updates", "test_accuracy", "ranks", "staleness")
        for trial in run["trials"]:
            trial |= {"status": status, "reason": "no process groups", "how": {}}
            trial |= dict.fromkeys(keys)

    folder = fake_ranks.make_run(tmp_path, change=fail, costs=False, parity=False)
    text = render([folder])[0].read_text("utf-8")
    assert len(rows(text, "failures")) == 34
    assert '<section id="bottleneck"' not in text


def test_ranks_whose_times_are_lost(tmp_path: Path) -> None:
    def lose(run: dict) -> None:
        for trial in run["trials"]:
            for key in ("ranks", "communication_share", "how", "train_s"):
                trial.pop(key, None)

    folder = fake_ranks.make_run(tmp_path, change=lose, costs=False)
    for path in folder.glob("trials/*/*/*/rank*.times.npz"):
        path.unlink()
    for path in folder.glob("trials/*/*/*/collectives.json"):
        path.unlink()
    text = render([folder])[0].read_text("utf-8")
    assert "figure-communication" not in text
    assert "training.steps" not in findings_by_key(folder)


def test_folders_of_two_backends_join(tmp_path: Path) -> None:
    a = fake_ranks.make_run(tmp_path / "a", backends=["torch"])
    b = fake_ranks.make_run(tmp_path / "b", backends=["torch", "mindspore"])
    run = load([a, b])
    assert {s.backend for s in run.serial} == {"torch (a)", "torch (b)", "mindspore"}
    assert {f["backend"] for f in run.cost["fits"]} == {"torch (a)", "torch (b)", "mindspore"}
    assert render([a, b], tmp_path / "out")
