"""Calibration of a plan by measured steps, and days and cost of a number of tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import dualml
from test_planner_search import make_request

from dualml.common.errors import UserError
from dualml.planning.planner.budget import check_price, parse_tokens, plan_budget
from dualml.planning.planner.calibration import calibrate, predict_seconds, with_constants
from dualml.planning.planner.measurements import read_measurements

STEP: dict[str, Any] = {
    "model": "gpt3-13b",
    "device": "a100",
    "layout": "dp=4,tp=8,zero=1,micro=2",
    "batch": 64,
    "steps": 20,
}


def write_steps(folder: Path, *steps: dict[str, Any]) -> Path:
    path = folder / "steps.json"
    path.write_text(json.dumps(list(steps) if len(steps) != 1 else steps[0]))
    return path


def simulate_step(request: Any, efficiency: float, overlap: float, **keys: Any) -> dict[str, Any]:
    """Return a step whose seconds are those of a cluster with these constants."""
    cluster = with_constants(request.cluster, efficiency, overlap)
    step = {**STEP, **keys}
    path = step.pop("path")
    [one] = read_measurements([write_steps(path, {**step, "seconds": 1.0})], request)
    return {**step, "seconds": predict_seconds(one, cluster)}


def test_one_step_fits_the_efficiency(tmp_path: Path) -> None:
    request = make_request("gpt3-175b", devices=64, overlap=1.0)
    step = simulate_step(request, 0.55, 1.0, path=tmp_path)
    fitted = calibrate([write_steps(tmp_path, step)], request)
    assert fitted.efficiency == pytest.approx(0.55, rel=1e-4)
    assert not fitted.overlap_fitted
    assert fitted.overlap == 1.0
    low, high = fitted.efficiency_range
    assert low <= fitted.efficiency <= high
    assert low < high  # how much is hidden is not known
    assert fitted.errors[0] == pytest.approx(0, abs=1e-4)
    applied = fitted.apply(request)
    assert applied.cluster.reached.products == fitted.efficiency
    assert applied.cluster.devices == 64


def test_two_steps_fit_the_overlap_too(tmp_path: Path) -> None:
    """A step with few messages of replicas and one with many determine both constants."""
    request = make_request("gpt3-13b", devices=64, overlap=1.0, link="5GB/s")
    steps = [
        simulate_step(request, 0.6, 0.02, path=tmp_path, layout=layout, batch=batch)
        for layout, batch in (("tp=8,micro=2", 64), ("dp=8,tp=8,zero=1", 8))
    ]
    fitted = calibrate([write_steps(tmp_path, *steps)], request)
    assert fitted.overlap_fitted
    assert fitted.efficiency == pytest.approx(0.6, rel=0.01)
    assert fitted.overlap == pytest.approx(0.02, abs=0.01)
    assert max(map(abs, fitted.errors)) < 0.01


def test_steps_without_messages_say_nothing_of_the_overlap(tmp_path: Path) -> None:
    request = make_request("gpt3-1.3b", devices=8, overlap=0.5)
    steps = [
        simulate_step(
            request, 0.5, 0.5, path=tmp_path, model="gpt3-1.3b", layout=f"micro={b}", batch=8
        )
        for b in (1, 2)
    ]
    fitted = calibrate([write_steps(tmp_path, *steps)], request)
    assert not fitted.overlap_fitted
    assert fitted.overlap == 0.5
    assert fitted.efficiency == pytest.approx(0.5, rel=1e-3)


def test_the_spread_of_steps_widens_the_range(tmp_path: Path) -> None:
    request = make_request("gpt3-13b", devices=32, overlap=1.0)
    step = simulate_step(request, 0.55, 1.0, path=tmp_path, layout="tp=8", batch=8)
    del step["steps"]
    middle = step["seconds"]
    wide = {**step, "seconds": [middle * k for k in (0.8, 0.9, 1.0, 1.1, 1.2)]}
    fitted = calibrate([write_steps(tmp_path, wide)], request)
    assert fitted.measurements[0].steps == 5
    assert fitted.measurements[0].seconds == pytest.approx(middle)
    low, high = fitted.efficiency_range
    assert low < 0.52 < 0.58 < high


def test_measured_memory_is_set_aside(tmp_path: Path) -> None:
    request = make_request("gpt3-13b", devices=32, overlap=1.0)
    step = simulate_step(request, 0.55, 1.0, path=tmp_path, layout="tp=8", batch=8)
    fitted = calibrate([write_steps(tmp_path, {**step, "memory": "70GB"})], request)
    assert fitted.memory is not None
    assert fitted.memory > 0
    applied = fitted.apply(request)
    assert applied.cluster.memory == pytest.approx(request.cluster.memory - fitted.memory)
    assert applied.reserve == pytest.approx(fitted.memory)
    lean = replace(fitted, memory=-1e9).apply(request)
    assert lean.cluster.memory == request.cluster.memory
    with pytest.raises(UserError, match="beyond the prediction"):
        replace(fitted, memory=1e12).apply(request)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"swapped": True}, "swapped"),
        ({"steps": 4}, "4 steps are too few; measure at least 5"),
        ({"steps": None}, "steps is missing"),
        ({"seconds": [1.0] * 4}, "4 steps are too few"),
        ({"device": "h100"}, "measured on h100, and the plan is for a100"),
        ({"seconds": 0}, "seconds are above 0"),
        ({"seconds": -1.0}, "seconds are above 0"),
        ({"seconds": 1e-3}, "that the peak of the device allows"),
        ({"seconds": 9e5}, "what it waits for is not in the model"),
        ({"layout": "dp=4,tp=7"}, "tp 7 does not divide 40 attention heads"),
        ({"layout": "dp=3"}, "does not divide a batch of 64"),
        ({"model": "gpt3-13"}, "unknown model"),
        ({"batch": 0}, "batch is at least 1"),
        ({"batch": "many"}, "batch"),
        ({"speed": 3}, "unknown key speed"),
        ({"memory": "much"}, "memory 'much'"),
        ({"precision": "int4"}, "precision is"),
    ],
)
def test_steps_that_are_refused(tmp_path: Path, keys: dict[str, Any], reason: str) -> None:
    request = make_request("gpt3-13b", devices=32)
    path = write_steps(tmp_path, {**STEP, "seconds": 10.0, **keys})
    with pytest.raises(UserError) as error:
        calibrate([path], request)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_refused(tmp_path: Path) -> None:
    request = make_request("gpt3-13b", devices=32)
    with pytest.raises(UserError, match="no such file or folder"):
        calibrate([tmp_path / "nothing.json"], request)
    empty = tmp_path / "empty.json"
    empty.write_text("[]")
    with pytest.raises(UserError, match="no measurement"):
        calibrate([empty], request)
    empty.write_text("{")
    with pytest.raises((UserError, ValueError)):
        calibrate([empty], request)


def test_days_and_cost() -> None:
    budget = plan_budget(1e12, 4_000_000, 10.0, 1024, 2.5)
    assert budget.updates == 250_000
    assert budget.days == pytest.approx(250_000 * 10 / 86400)
    assert budget.device_hours == pytest.approx(1024 * 250_000 * 10 / 3600)
    assert budget.cost == pytest.approx(2.5 * budget.device_hours)
    assert plan_budget(5.0, 2, 1.0, 1, None).updates == 3
    assert plan_budget(5.0, 2, 1.0, 1, None).cost is None


@pytest.mark.parametrize(
    ("text", "tokens"), [("1T", 1e12), ("300B", 3e11), ("1.4e12", 1.4e12), ("2.5 m", 2.5e6)]
)
def test_tokens_are_read(text: str, tokens: float) -> None:
    assert parse_tokens(text) == pytest.approx(tokens)


@pytest.mark.parametrize("text", ["", "many", "0", "-1T", "1e30", "1TB"])
def test_tokens_that_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--tokens"):
        parse_tokens(text)


def test_a_price_needs_tokens() -> None:
    check_price(None, None)
    check_price(2.5, "1T")
    with pytest.raises(UserError, match="give --tokens"):
        check_price(2.5, None)
    for price in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="--price is from 0"):
            check_price(price, "1T")


RUN = """
name = "timed"
title = { en = "x", zh = "x" }
model = "gpt_llama"
sizes = { width = 16, heads = 2 }
data = { name = "sentences", words = 60, length = 8, train = 32, test = 8 }
parity = { draws = 1, horizon = 1 }
evaluation = { early = [], train_samples = 8 }
arms.plain = { updates = 6, batch_size = 8, optimizer = { name = "adam", lr = 0.001 } }
arms.short = { updates = 3, batch_size = 8, optimizer = { name = "adam", lr = 0.001 } }
"""


def test_a_run_folder_calibrates(tmp_path: Path) -> None:
    """Arms with enough updates are measurements, with the layout and the model that they had."""
    path, out = tmp_path / "timed.toml", tmp_path / "out"
    path.write_text(RUN)
    done = dualml("run", path, "--backend", "numpy", "--out", out, "--no-report")
    assert done.returncode == 0, done.stderr
    request = make_request("gpt_llama", devices=1, precision="fp32", hbm="2TB/s")
    [one] = read_measurements([out], request)
    assert one.source.endswith("plain on numpy")
    assert (one.shape.hidden, one.devices, one.steps) == (16, 1, 6)
    assert 0 < one.low <= one.seconds <= one.high
    told = dualml("plan", "--run", out)
    assert "plain" in told.stdout
    short = tmp_path / "short.toml"
    short.write_text(RUN.replace("updates = 6", "updates = 4"))
    done = dualml("run", short, "--backend", "numpy", "--out", tmp_path / "few", "--no-report")
    assert done.returncode == 0, done.stderr
    with pytest.raises(UserError, match="2 have less than 5 updates"):
        read_measurements([tmp_path / "few"], request)
