"""A method is ranked only if its trials recorded that it trained what the plan says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_methods import ARMS, TWO, make_run, serial

from dualml.common.words import LANGUAGES, Messages
from dualml.experiment.store.load import load
from dualml.report.baseline_diff import exclusion_reason
from dualml.report.methods import MethodResult
from dualml.report.topics.method_ranks import last_batches

EN = Messages("en")
Change = Callable[[dict[str, Any]], None]


def mismatch_reason(folder: Path, arm: str, words: Messages = EN) -> str:
    return exclusion_reason(MethodResult(load([folder]), arm, "torch"), words)


def altered(arm: str, **values: Any) -> Change:
    """Change what the trial of one arm recorded."""
    return lambda trial: trial.update(values) if trial["arm"] == arm else None


def forged(arm: str, rank: int) -> Change:
    """Make a rank of an arm train on other samples, the same number of them."""

    def change(trial: dict[str, Any]) -> None:
        if trial["arm"] == arm:
            trial["samples"][rank]["sha256"] = "f" * 64

    return change


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("methods"))


@pytest.mark.parametrize("arm", ["single", "bf16", "loop", "ddp", "zero", "lower"])
def test_who_did_the_same_is_ranked(folder: Path, arm: str) -> None:
    assert mismatch_reason(folder, arm) == ""


@pytest.mark.parametrize(
    ("arm", "text"),
    [
        ("twice", "batches of 128 in place of 64"),
        ("padded", "other samples: partitioned by distributed_sampler"),
        ("other-rate", "there is no arm in one process with its settings to hold it against"),
        ("longer", "there is no arm in one process with its settings to hold it against"),
    ],
)
def test_who_was_asked_for_something_else_is_not(folder: Path, arm: str, text: str) -> None:
    assert mismatch_reason(folder, arm) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (altered("ddp", world_size=1), "1 process trained in place of 2"),
        (altered("ddp", updates=12), "12 updates with 355 samples in place of 6 with 355"),
        (altered("ddp", sample_gradients=320), "6 updates with 320 samples in place of 6 with 355"),
        (forged("ddp", 1), "other samples, or in another order, than the plan assigns to it"),
    ],
)
def test_what_was_recorded_counts_whatever_was_asked_for(
    tmp_path: Path, change: Change, text: str
) -> None:
    folder = make_run(tmp_path, arms=("single", "ddp", "zero"), change=change)
    assert mismatch_reason(folder, "ddp") == text
    assert mismatch_reason(folder, "zero") == ""


def test_the_samples_of_one_process_are_those_of_its_reference(tmp_path: Path) -> None:
    folder = make_run(tmp_path, arms=("single", "loop"), planned=False, change=forged("loop", 0))
    assert "other samples" in mismatch_reason(folder, "loop")


def test_ranks_that_swap_their_parts_are_seen_by_the_plan_alone(tmp_path: Path) -> None:
    def swap(trial: dict[str, Any]) -> None:
        if trial["arm"] == "ddp":
            trial["samples"].reverse()

    arms = ("single", "ddp", "padded")
    assert "other samples" in mismatch_reason(
        make_run(tmp_path / "a", arms=arms, change=swap), "ddp"
    )
    # Without a plan the counts are all there is: DistributedSampler repeats one of 355.
    folder = make_run(tmp_path / "b", arms=arms, planned=False, change=swap)
    assert mismatch_reason(folder, "ddp") == ""
    assert mismatch_reason(folder, "padded") == "other samples: partitioned by distributed_sampler"


def test_a_loader_of_an_engine_deals_the_last_batch_in_slices_of_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine's loader gives the last 35 of 64 samples to two ranks as 32 and 3, and not as 18
    and 17 like the plan."""
    monkeypatch.setitem(ARMS, "loader", {**TWO, "method": "accelerate_loader"})
    folder = make_run(tmp_path / "a", arms=("single", "loader"))
    (trial,) = load([folder]).select("loader", "torch")
    assert [n for n, _ in trial.samples] == [160 + 32, 160 + 3]
    assert mismatch_reason(folder, "loader") == ""
    (last,) = last_batches(load([folder]), EN)
    assert last.parts == [32, 3]

    parts: list[Any] = []
    make_run(tmp_path / "b", arms=("single", "ddp"), change=lambda t: parts.append(t["samples"]))
    folder = make_run(
        tmp_path / "c", arms=("single", "loader"), change=altered("loader", samples=parts[-1])
    )
    assert "other samples" in mismatch_reason(folder, "loader")


def test_without_fingerprints_what_was_asked_for_counts(tmp_path: Path) -> None:
    folder = make_run(tmp_path, change=lambda trial: trial.update(samples=[], samples_sha256=""))
    assert mismatch_reason(folder, "ddp") == ""
    assert mismatch_reason(folder, "padded") == "other samples: partitioned by distributed_sampler"


OPEN = {"equivalent": False, "mean": -0.02, "low": -0.035, "high": -0.005, "margin": 0.01}
OVER = {"evidence": {"equivalence": {**OPEN, "seeds": 3}}}


@pytest.mark.parametrize(
    ("judgement", "text"),
    [
        (serial("ddp", 0, "different", "outside_envelope"), "another trajectory than one process"),
        (
            serial("ddp", 0, "not comparable", "other_samples"),
            "not comparable with one process: trained on other samples, or in another order",
        ),
        (
            serial("ddp", 0, "not comparable", "chaotic"),
            "not comparable with one process: rounding",
        ),
        (serial("ddp", 0, None, "sum"), "another rule: a sum instead of a mean"),
        (
            serial("ddp", 0, None, "precision", **OVER),
            "its test accuracies are not shown to be those of float32: −3.50 … −0.50 points "
            "(margin ±1, 3 seeds)",
        ),
    ],
)
def test_the_verdict_decides_too(tmp_path: Path, judgement: dict[str, Any], text: str) -> None:
    folder = make_run(tmp_path, arms=("single", "ddp"), judged=[judgement])
    assert mismatch_reason(folder, "ddp").startswith(text)


@pytest.mark.parametrize("equivalent", [True, False])
def test_a_lower_precision_is_ranked_by_its_seeds(tmp_path: Path, equivalent: bool) -> None:
    test = {**OPEN, "seeds": 3, "equivalent": equivalent}
    judged = [serial("lower", 0, None, "precision", evidence={"equivalence": test})]
    folder = make_run(tmp_path, arms=("single", "lower"), judged=judged)
    assert bool(mismatch_reason(folder, "lower")) != equivalent


def test_a_reference_that_failed_is_none(tmp_path: Path) -> None:
    folder = make_run(tmp_path, arms=("single", "ddp"), change=altered("single", status="failed"))
    assert mismatch_reason(folder, "ddp") == "single, its baseline, did not complete here"


def test_of_two_references_that_with_the_same_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {**ARMS["single"], "batch_size": 128}
    monkeypatch.setattr("fake_methods.ARMS", {"large": large, **ARMS})
    folder = make_run(tmp_path, arms=("large", "single", "ddp", "twice"))
    run = load([folder])
    held = {arm: MethodResult(run, arm, "torch").reference for arm in ("ddp", "twice")}
    assert {arm: one and one.arm for arm, one in held.items()} == {
        "ddp": "single",
        "twice": "large",
    }
    assert mismatch_reason(folder, "twice") == mismatch_reason(folder, "ddp") == ""


def test_both_languages_give_the_same_reasons(folder: Path) -> None:
    for arm in ARMS:
        en, zh = (mismatch_reason(folder, arm, Messages(lang)) for lang in LANGUAGES)
        assert bool(en) == bool(zh)
        assert re.findall(r"\d+", en) == re.findall(r"\d+", zh)
