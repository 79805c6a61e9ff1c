"""Partitions in the report: run folders that lack arms, trials, seeds or their plan."""

from __future__ import annotations

import json
import re
from pathlib import Path

import fake_partitions
import fake_ranks
import pytest
from report_partitions import MINE, anchors, row, table, unbroken_findings
from test_report_page import Page, rows

from dualml.experiment.store.load import load
from dualml.report import render
from dualml.report.run_partitions import list_partitions

pytestmark = pytest.mark.whole

SUBSETS = {
    ("part",): ["partitions"],
    ("part-one",): ["partitions"],
    ("sample", "kept"): ["partitions", "sampling"],
    ("skew-half",): ["partitions", "skew"],
    ("skew-half-gradients",): ["partitions"],
    ("skew-half", "skew-half-16"): ["partitions", "skew"],
    ("fractions",): ["partitions", "skew"],
    ("part", "skew-none"): ["partitions"],
}


@pytest.mark.parametrize("arms", SUBSETS, ids=",".join)
def test_any_subset_makes_a_page(tmp_path: Path, arms: tuple[str, ...]) -> None:
    folder = fake_partitions.make_run(
        tmp_path, arms=arms, backends=["torch"], seeds=[0], parity=False
    )
    text = render([folder])[0].read_text("utf-8")
    Page(text)
    assert [c for c in anchors(text) if c in MINE] == SUBSETS[arms]
    for name in re.findall(r'<table id="table-([^"]+)"', text):
        assert rows(text, name), name  # no table without a row


def test_runs_without_partitions_have_none_of_it(tmp_path: Path) -> None:
    folder = fake_ranks.make_run(tmp_path, arms=["single", "all-reduce-n2", "local-4"], costs=False)
    text = render([folder])[0].read_text("utf-8")
    assert not set(anchors(text)) & set(MINE)
    assert "local_sgd.py" not in text


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_everything_failed(tmp_path: Path, status: str) -> None:
    def fail(run: dict) -> None:
        keys = (
            "final_loss",
            "train_s",
            "updates",
            "test_accuracy",
            "class_accuracy",
            "samples_sha256",
            "how",
        )
        for trial in run["trials"]:
            trial |= {"status": status, "reason": "no process groups"}
            trial |= dict.fromkeys(keys)

    folder = fake_partitions.make_run(tmp_path, change=fail, parity=False)
    text = render([folder])[0].read_text("utf-8")
    assert [c for c in anchors(text) if c in MINE] == ["partitions"]  # the plan is known
    assert row(table(load([folder]), "partitions"), "random_partition")[-1] == "–"


def test_one_failed_trial_is_left_out(tmp_path: Path) -> None:
    arms = ["part", "sample", "skew-none", "skew-half"]
    folder = fake_partitions.make_run(tmp_path, arms=arms, failed=("sample", "torch", 1))
    run = load([folder])
    made = table(run, "sampling")
    assert row(made, "sample", "torch")[-1] == "– too few seeds"
    assert row(made, "sample", "mindspore")[-1] == "≈ statistically equal"
    assert "with 2 seeds no interval" in unbroken_findings(folder)["sampling.few"][0]
    # Seed 1 of that arm was compared between no backends.
    assert list(table(run, "partitions").cells)[1][-1].note == "2 of 2"


def test_a_plan_that_is_lost(tmp_path: Path) -> None:
    folder = fake_partitions.make_run(tmp_path, seeds=[0], backends=["torch"])
    (folder / "plan" / "plan.json").unlink()
    text = render([folder])[0].read_text("utf-8")
    assert '<section id="partitions"' not in text
    run = load([folder])
    assert row(table(run, "sampling"), "sample", "torch")[2:5] == ["–", "–", "–"]
    line = next(r for r in table(run, "skew").cells if r[0].text == "skew-half")
    assert line[4].text == "–"
    (folder / "plan" / "plan.json").write_text("{", "utf-8")
    (line,) = load([folder]).unreadable
    assert line.startswith("plan/plan.json: not JSON")
    assert f"cannot be read: {line[:20]}" in render([folder])[0].read_text("utf-8")


def test_folders_of_two_machines(tmp_path: Path) -> None:
    a = fake_partitions.make_run(tmp_path / "a", backends=["torch"])
    b = fake_partitions.make_run(tmp_path / "b", backends=["torch", "mindspore"])
    run = load([a, b])
    assert run.backends == ["torch (a)", "torch (b)", "mindspore"]
    assert len(list_partitions(run)) == 9
    assert render([a, b], tmp_path / "out")
    assert row(table(run, "partitions"), "random_partition")[-1] == "✓ yes"


def test_a_rule_this_version_does_not_know(tmp_path: Path) -> None:
    folder = fake_partitions.make_run(
        tmp_path, arms=["part", "sample"], backends=["torch"], seeds=[0]
    )
    path = folder / "run.json"
    told = json.loads(path.read_text("utf-8"))
    told["experiment"]["arms"]["sample"]["partition"]["name"] = "by_moonlight"
    path.write_text(json.dumps(told), "utf-8")
    assert [d.text for d in list_partitions(load([folder]))] == ["random_partition"]
    assert render([folder])
