"""Reading run folders: formats, several folders, broken files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import fake_run
import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.experiment.store.load import load
from dualml.report import render

pytestmark = pytest.mark.whole


def edit(path: Path, **values: object) -> None:
    content = json.loads(path.read_text("utf-8")) | values
    path.write_text(json.dumps(content), "utf-8")


def test_curves_hold_the_records(tmp_path: Path) -> None:
    run = load([fake_run.make_run(tmp_path)])
    trial = run.select("adam", "torch")[0]
    expected = fake_run.curve("adam", fake_run.MAIN["adam"], "torch", 0)
    np.testing.assert_array_equal(trial.curves["loss"].value, expected)
    np.testing.assert_array_equal(trial.curves["loss"].step, np.arange(1, len(expected) + 1))
    assert np.isnan(trial.curves["loss"].seconds).all()
    assert np.isfinite(trial.curves["test_accuracy"].seconds).all()
    assert run.backends == ["numpy", "torch", "mindspore"]
    assert list(run.arms) == ["gd", "sgd", "adam"]


def test_a_folder_without_run_json(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no run\.json"):
        render([tmp_path])


FORMATS = [(2, "written by a newer dualml (format 2"), (None, "format: no version number")]


@pytest.mark.parametrize(("value", "text"), FORMATS)
def test_a_run_of_another_format_is_refused(tmp_path: Path, value: object, text: str) -> None:
    edit(fake_run.make_run(tmp_path) / "run.json", format=value)
    with pytest.raises(UserError, match=rf"run\.json: {re.escape(text)}"):
        render([tmp_path])


@pytest.mark.parametrize(("value", "text"), FORMATS)
def test_of_verdicts_of_another_format_the_page_tells(
    tmp_path: Path, value: object, text: str
) -> None:
    edit(fake_run.make_run(tmp_path) / "parity.json", format=value)
    run = load([tmp_path])
    assert run.comparisons is None
    assert [line for line in run.unreadable if line.startswith(f"parity.json: {text}")]
    assert f"cannot be read: parity.json: {text}" in render([tmp_path])[0].read_text("utf-8")


def test_a_broken_record_names_its_line(tmp_path: Path) -> None:
    path = fake_run.make_run(tmp_path, failed=None) / "trials/sgd/torch/seed0/rank0.jsonl"
    lines = path.read_text("utf-8").splitlines()
    lines[4] = '{"metric": '
    path.write_text("\n".join(lines), "utf-8")
    run = load([tmp_path])
    (broken,) = (trial for trial in run.trials if not trial.ok)
    assert (broken.arm, broken.backend, broken.seed) == ("sgd", "torch", 0)
    assert (broken.status, broken.curves) == ("unreadable", {})
    assert "trials/sgd/torch/seed0/rank0.jsonl, line 5: not JSON" in broken.reason
    assert run.unreadable == [broken.reason]
    page = render([tmp_path])[0].read_text("utf-8")
    assert page.count("rank0.jsonl, line 5") >= 2  # a notice, and the table of trials


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    path = fake_run.make_run(tmp_path) / "trials/sgd/torch/seed0/rank0.jsonl"
    path.write_text(path.read_text("utf-8") + '{"metric": "lo', "utf-8")
    assert len(load([tmp_path]).select("sgd", "torch")[0].curves["loss"].step) == 500


def test_folders_of_one_plan_stand_side_by_side(tmp_path: Path) -> None:
    a = fake_run.make_run(tmp_path / "a", backends=["torch"], failed=None)
    b = fake_run.make_run(tmp_path / "b", backends=["torch", "mindspore"], failed=None)
    run = load([a, b, a])
    assert run.backends == ["torch (a)", "torch (b)", "mindspore"]
    assert set(run.environment) == set(run.backends)
    assert {(c.a, c.b) for c in run.comparisons or ()} == {("torch (b)", "mindspore")}
    written = render([a, b])
    assert written[0] == a / "report.html"
    page = written[0].read_text("utf-8")
    for backend in run.backends:
        assert f">{backend}<" in page
    assert "joins 2 run folders" in page


def test_folders_of_other_plans_name_the_parts(tmp_path: Path) -> None:
    a = fake_run.make_run(tmp_path / "a", failed=None)
    b = fake_run.make_run(tmp_path / "b", failed=None, plan={"weights": "1", "order": "2"})
    with pytest.raises(UserError, match=r"differ in: weights, order\."):
        render([a, b])


def test_unknown_language(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown language 'fr'"):
        render([fake_run.make_run(tmp_path)], lang="fr")
