"""Lab 2 as a user runs it: real ranks of both frameworks, and the page's contents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import require
from running import loaded_from_elsewhere, run_lab, settings

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

TRAINED = ["single", "all-reduce", "ring", "parameter-server", "sum", "slow-compute-all-reduce"]
ARMS = [
    "micro-n2",
    "single",
    "all-reduce-n2",
    "ring-n2",
    "parameter-server-n2",
    "sum",
    "slow-compute-all-reduce",
]


@pytest.fixture(scope="module")
def finished_run(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Path, dict[str, Any]]:
    """Run a few arms with few updates; with ``--slow`` everything in ``--quick``."""
    require("torch")
    require("mindspore")
    out = tmp_path_factory.mktemp("lab2") / "out"
    fewer = [w for arm in TRAINED for w in ("--set", f"arms.{arm}.updates=20")]
    fewer += settings(data__train=512, data__test=100, evaluation__train_samples=100)
    whole = request.config.getoption("--slow")
    return out, run_lab(out, "lab2", ARMS, *fewer, whole=whole)


def test_every_trial_of_both_frameworks_succeeds(finished_run: tuple[Path, dict[str, Any]]) -> None:
    _, told = finished_run
    assert {t["status"] for t in told["trials"]} == {"ok"}
    assert {t["backend"] for t in told["trials"]} == {"torch", "mindspore"}
    assert {c["verdict"] for c in told["parity"]} == {"equal"}


def test_n_workers_are_one_on_both_frameworks(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, _ = finished_run
    serial = json.loads((out / "parity.json").read_text())["serial"]
    found = {(c["arm"], c["backend"]): c["verdict"] for c in serial}
    for arm in ("all-reduce-n2", "ring-n2", "parameter-server-n2"):
        assert found[arm, "torch"] == found[arm, "mindspore"] == "equal"
    assert found["sum", "torch"] is None


def test_the_slow_node_is_seen_and_its_peers_wait(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    _, told = finished_run
    for trial in told["trials"]:
        if trial["arm"] != "slow-compute-all-reduce":
            continue
        fast, slow = trial["ranks"]
        assert slow["compute_s"] > 1.5 * fast["compute_s"]
        assert fast["wait_s"] > slow["wait_s"]


def test_both_frameworks_say_how_they_did_it(finished_run: tuple[Path, dict[str, Any]]) -> None:
    _, told = finished_run
    how = {t["backend"]: t["how"] for t in told["trials"] if t["arm"] == "micro-n2"}
    assert how["torch"]["reduce"].startswith("native")
    assert how["mindspore"]["reduce"].startswith("composed")


def test_the_report_has_its_pictures(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, _ = finished_run
    page = (out / "report.html").read_text("utf-8")
    assert page.count("<svg") > 8
    assert not loaded_from_elsewhere(page)
    assert (out / "cost.json").is_file()
