"""Whole low-precision runs on the reference (no framework needed)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from command import goes_on_when_interrupted, run, strict
from page_parts import findings_by_key

from dualml.algorithms.precision.scaling import MAX_SKIPPED_UPDATES, START

pytestmark = pytest.mark.whole

SHARED = """
optimizer = { name = "adam", lr = 0.001 }
schedule = { kind = "cosine", warmup = 3 }
batch_size = 2
updates = 40
"""
#: One sample's gradient of 2¹⁶ times the loss, times a white pixel, is too large for float16.
TOML = f"""
name = "precision"
model = "softmax"
title = {{ en = "Precision", zh = "精度" }}
[data]
name = "digits"
train = 203
test = 50
[arms.fp32]
{SHARED}
[arms.bf16]
precision = "bf16"
{SHARED}
[arms.fp16]
precision = "fp16"
{SHARED}
[arms.fixed]
precision = "fp16"
loss_scale = 64
{SHARED}
[arms.ring]
precision = "fp16"
world_size = 2
aggregation = {{ strategy = "ring" }}
{SHARED}
[arms.fixed-ring]
precision = "fp16"
loss_scale = 64
world_size = 2
aggregation = {{ strategy = "ring" }}
{SHARED}
[arms.halves]
precision = "fp16"
loss_scale = 64
world_size = 2
split = {{ data = 2 }}
{SHARED}
[arms.dynamic-halves]
precision = "fp16"
world_size = 2
split = {{ data = 2 }}
{SHARED}
[arms.deep]
precision = "bf16"
model = "mlp"
{SHARED}
[arms.deep-by-layer]
precision = "bf16"
model = "mlp"
world_size = 2
split = {{ micro_batches = 2 }}
{SHARED}
[arms.deep-inside]
precision = "bf16"
model = "mlp"
world_size = 2
split = {{ tensor = 2 }}
{SHARED}
[arms.deep-fp32]
model = "mlp"
{SHARED}
[arms.split-hopeless]
precision = "fp16"
loss_scale = 1e9
world_size = 2
split = {{ data = 2 }}
{SHARED}
[arms.hopeless]
precision = "fp16"
loss_scale = 1e9
{SHARED}
[arms.too-short]
precision = "fp16"
loss_scale = 1e9
{SHARED.replace("40", "10")}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lab") / "precision.toml"
    path.write_text(TOML)
    return path


@pytest.fixture(scope="module")
def finished_run(
    lab: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("precision") / "out"
    code, summary = run(lab, out)
    assert code == 1  # hopeless
    return out, {trial["arm"]: trial for trial in summary["trials"]}


def test_the_scale_and_what_it_cost_are_recorded(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, trials = finished_run
    kept = {t["arm"]: t for t in strict((out / "run.json").read_text())["trials"]}
    assert trials["fixed"]["loss_scale"] == {"last": 64.0, "skipped": 0}
    for arm in ("fp16", "ring", "dynamic-halves"):
        scale = kept[arm]["loss_scale"]
        assert scale["skipped"] >= 1
        assert scale["last"] == START / 2 ** scale["skipped"]
    for arm in ("fp32", "bf16"):
        assert kept[arm].get("loss_scale") is None
    assert kept["bf16"]["how"]["precision"] == "composed: float64, rounded to bf16"
    assert "precision" not in kept["fp32"]["how"]


@pytest.mark.parametrize(
    ("lang", "skipped"), [("en", "skipped because"), ("zh", "因缩放后的梯度溢出而跳过")]
)
def test_the_page_tells_what_a_scaled_loss_cost(
    finished_run: tuple[Path, dict[str, Any]], lang: str, skipped: str
) -> None:
    told = findings_by_key(finished_run[0], lang)["trials.skipped"]
    names = ("fp16", "fixed", "ring", "fixed-ring", "halves", "dynamic-halves")
    longest_first = sorted(names, key=len, reverse=True)
    assert [next(arm for arm in longest_first if arm in text) for text in told] == list(names)
    assert all(skipped in text for text in told)
    assert re.search(r"\b0\b.*\b64\b", told[1])


def test_they_learn_as_in_float32(finished_run: tuple[Path, dict[str, Any]]) -> None:
    _, trials = finished_run
    for arm in ("bf16", "fp16", "fixed", "ring"):
        assert trials[arm]["status"] == "ok"
        gap = trials[arm]["final_loss"] - trials["fp32"]["final_loss"]
        assert 0 < abs(gap) < 0.2, arm


def test_ranks_are_held_against_one_where_they_skip_alike(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    """A gradient of the whole batch may overflow while those of its halves, summed in float32, do
    not. Otherwise each half is rounded separately, within the effect of rounding."""
    out, trials = finished_run
    serial = strict((out / "parity.json").read_text())["serial"]
    found = {c["arm"]: (c["against"], c["verdict"], c["reason"]) for c in serial}
    assert found["ring"] == ("fp16", "not comparable", "other_skips")
    assert found["fixed-ring"] == ("fixed", "equal", "inside_envelope")
    assert trials["fixed-ring"]["loss_scale"] == trials["fixed"]["loss_scale"]


def test_a_split_model_is_held_against_the_whole_one_of_its_precision(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    out, trials = finished_run
    serial = strict((out / "parity.json").read_text())["serial"]
    found = {c["arm"]: (c["against"], c["verdict"]) for c in serial}
    assert found["halves"] == ("fixed", "equal")
    for arm in ("deep-by-layer", "deep-inside"):
        assert found[arm] == ("deep", "equal")
        assert trials[arm]["how"]["precision"] == trials["deep"]["how"]["precision"]
        assert 0 < abs(trials[arm]["final_loss"] - trials["deep-fp32"]["final_loss"]) < 0.2
    assert trials["halves"]["loss_scale"] == {"last": 64.0, "skipped": 0}


@pytest.mark.parametrize("arm", ["hopeless", "split-hopeless"])
def test_what_always_overflows_fails_with_the_remedy(
    finished_run: tuple[Path, dict[str, Any]], arm: str
) -> None:
    _, trials = finished_run
    assert trials[arm]["status"] == "failed"
    assert f"{MAX_SKIPPED_UPDATES} updates in a row were skipped" in trials[arm]["reason"]
    assert "set loss_scale lower" in trials[arm]["reason"]


def test_a_trial_that_ends_before_its_first_update_is_made_fails(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    _, trials = finished_run
    assert trials["too-short"]["status"] == "failed"
    assert "10 of 10 updates were skipped" in trials["too-short"]["reason"]


@pytest.mark.parametrize("arm", ["ring", "dynamic-halves"])
def test_an_interrupted_trial_goes_on_with_its_scale(lab: Path, tmp_path: Path, arm: str) -> None:
    words = ("--set", f"arms.{arm}.updates=1500", "--set", "data.test=1")
    goes_on_when_interrupted(lab, tmp_path, arm, *words)
