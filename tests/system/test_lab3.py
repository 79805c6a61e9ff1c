"""Lab 3 as a user runs it: partitioned data on real ranks of both frameworks, with verification."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import require
from running import loaded_from_elsewhere, run_lab, settings

pytestmark = [pytest.mark.system, pytest.mark.timeout(500)]

Ran = tuple[Path, dict[str, Any]]


ARMS = [
    "one-node",
    "nodes-n2",
    "native-n2",
    "skew-none",
    "skew-shards",
    "fractions",
    "fractions-one",
]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Ran:
    """Run a few arms with few samples; with ``--slow`` everything in ``--quick``."""
    require("torch")
    require("mindspore")
    out = tmp_path_factory.mktemp("lab3") / "out"
    fewer = settings(
        data__train=1024, data__test=100, evaluation__train_samples=100, parity__draws=2
    )
    whole = request.config.getoption("--slow")
    return out, run_lab(out, "lab3", ARMS, *fewer, whole=whole)


def test_every_trial_of_both_frameworks_succeeds(finished_run: Ran) -> None:
    _, told = finished_run
    assert {t["status"] for t in told["trials"]} == {"ok"}
    assert {c["verdict"] for c in told["parity"]} == {"equal"}


def test_both_frameworks_trained_on_the_same_samples(finished_run: Ran) -> None:
    _, told = finished_run
    seen: dict[str, set[str]] = defaultdict(set)
    for trial in told["trials"]:
        seen[trial["arm"]].add(trial["samples_sha256"])
    assert {arm: len(found) for arm, found in seen.items()} == dict.fromkeys(seen, 1)
    assert seen["fractions"] == seen["fractions-one"]  # one node on what several had


def test_dealt_data_and_native_training_give_what_one_node_gives(finished_run: Ran) -> None:
    out, _ = finished_run
    serial = json.loads((out / "parity.json").read_text())["serial"]
    found = {(c["arm"], c["backend"]): c["verdict"] for c in serial}
    for arm in ("nodes-n2", "native-n2", "fractions"):
        assert found[arm, "torch"] == found[arm, "mindspore"] == "equal", arm


def test_a_rank_that_ends_its_epoch_earlier_loses_no_sample(finished_run: Ran) -> None:
    out, told = finished_run
    deals = json.loads((out / "plan" / "plan.json").read_text())["deals"]
    # One for each epoch, of which the digits that stand in for MNIST have several.
    statements = next(s for key, s in deals.items() if "fractions" in key)
    assert statements
    for statement in statements:
        assert statement["covering"]
        assert statement["disjoint"]
        assert statement["sizes"][0] > 2 * statement["sizes"][1]
    [trial, other] = [t for t in told["trials"] if t["arm"] == "fractions"]
    samples = sum(statement["samples"] for statement in statements)
    assert trial["sample_gradients"] == other["sample_gradients"] == samples


def test_ranks_that_average_parameters_are_apart(finished_run: Ran) -> None:
    out, _ = finished_run
    means = {}
    for arm in ("skew-none", "skew-shards"):
        for backend in ("torch", "mindspore"):
            for rank in range(2):
                path = out / "trials" / arm / backend / "seed0" / f"rank{rank}.jsonl"
                records = [json.loads(line) for line in path.read_text().splitlines()]
                apart = [r["value"] for r in records if r["metric"] == "divergence"]
                assert apart
                means[arm, backend, rank] = sum(apart) / len(apart)
    for backend in ("torch", "mindspore"):
        assert means["skew-shards", backend, 0] > 1.5 * means["skew-none", backend, 0]


def test_accuracy_is_told_class_by_class(finished_run: Ran) -> None:
    _, told = finished_run
    for trial in told["trials"]:
        assert len(trial["class_accuracy"]) == 10
        assert (
            min(trial["class_accuracy"]) <= trial["test_accuracy"] <= max(trial["class_accuracy"])
        )


def test_the_report_has_its_pictures(finished_run: Ran) -> None:
    out, _ = finished_run
    page = (out / "report.html").read_text("utf-8")
    for name in ("partitions", "skew", "scaling"):
        assert f'<section id="{name}"' in page, name
    assert page.count("<svg") > 8
    assert not loaded_from_elsewhere(page)
