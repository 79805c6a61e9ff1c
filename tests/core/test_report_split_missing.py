"""Split models in the report: run folders that lack plans, timelines, numbers or arms."""

from __future__ import annotations

import re
from pathlib import Path

import fake_splits
import pytest
from page_parts import findings_by_key
from test_report_page import Page, rows

from dualml.experiment.store.load import load
from dualml.report import render

pytestmark = pytest.mark.whole

SOME = ["deep", "one-1", "one-4", "inside", "slow-inside", "mesh", "rpc"]


def page(folder: Path, lang: str = "en") -> str:
    text = render([folder], folder / lang, lang)[0].read_text("utf-8")
    Page(text)
    for name in re.findall(r'<table id="table-([^"]+)"', text):
        assert rows(text, name), name
    return text


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("plan", [True, False])
@pytest.mark.parametrize("timelines", [True, False])
def test_files_that_are_not_there(tmp_path: Path, plan: bool, timelines: bool, lang: str) -> None:
    backends = ["torch"] if plan else ["numpy", "torch", "mindspore"]
    folder = fake_splits.make_run(
        tmp_path, arms=SOME, backends=backends, plan=plan, timelines=timelines
    )
    text = page(folder, lang)
    assert ("figure-plan-inside" in text) == plan
    assert ('<section id="timelines"' in text) == timelines
    assert '<section id="split_times"' in text
    said = findings_by_key(folder, lang)
    assert ("pays.no_messages" in said) == plan  # without a plan no model is known


def test_one_rank_left_no_timeline(tmp_path: Path) -> None:
    folder = fake_splits.make_run(tmp_path, arms=["deep", "one-4"], backends=["torch"])
    (folder / "trials/one-4/torch/seed0/rank1.timeline.npz").unlink()
    (trial,) = load([folder]).select("one-4")
    assert [len(t["step"]) > 0 for t in trial.timelines] == [True, False]
    assert "that rank recorded nothing" in page(folder)


def test_trials_that_did_not_succeed(tmp_path: Path) -> None:
    def fail(run: dict) -> None:
        for trial in run["trials"]:
            keys = ("train_s", "updates", "sample_gradients", "final_loss", "test_accuracy")
            lost = (*keys, "ranks", "split", "memory")
            if trial["arm"] != "one-4" or trial["backend"] == "mindspore":
                trial |= {"status": "failed", "reason": "lost"} | dict.fromkeys(lost)

    folder = fake_splits.make_run(tmp_path, arms=SOME, change=fail)
    text = page(folder)
    assert '<section id="split_times"' in text
    assert '<section id="slow_link"' not in text


def test_nothing_succeeded(tmp_path: Path) -> None:
    def fail(run: dict) -> None:
        for trial in run["trials"]:
            keys = ("train_s", "updates", "final_loss", "ranks", "split", "memory")
            trial |= {"status": "interrupted", "reason": "not started"} | dict.fromkeys(keys)

    text = page(fake_splits.make_run(tmp_path, arms=SOME, change=fail))
    assert '<section id="bubble"' not in text
    assert "figure-plan-inside" in text  # the plan was made all the same


def test_numbers_that_were_not_recorded(tmp_path: Path) -> None:
    def lose(run: dict) -> None:
        for trial in run["trials"]:
            trial.update(memory=None, split={}, ranks=[{"compute_s": 1.0}] * 2)

    folder = fake_splits.make_run(tmp_path, arms=SOME, change=lose)
    text = page(folder)
    assert "table-memory" not in text
    assert "table-bubble" not in text
    assert "table-split-parts" not in text
    assert "table-split-whole" in text


def test_a_split_that_is_not_the_whole_model(tmp_path: Path) -> None:
    folder = fake_splits.make_run(tmp_path, arms=["deep", "one-4", "inside"], different="inside")
    said = findings_by_key(folder)
    assert said["serial.count_split"] == [
        "Split models against the whole ones: 2 of 4 comparisons equal within rounding."
    ]
    assert said["serial.diverged"][0].startswith("inside, seed 0, on torch differs from deep")
    text = page(folder)
    whole = next(r for r in rows(text, "split-whole") if ">inside<" in r)
    assert "≠ different" in whole


def test_folders_together(tmp_path: Path) -> None:
    folders = [
        fake_splits.make_run(tmp_path / b, arms=["deep", "one-4"], backends=[b])
        for b in ("torch", "mindspore")
    ]
    text = render(folders, tmp_path / "both")[0].read_text("utf-8")
    Page(text)
    assert "torch: time per update" in text
    assert "mindspore: time per update" in text
