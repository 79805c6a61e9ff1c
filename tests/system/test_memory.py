"""The memory study as a user runs it: both frameworks match the closed form and train equally."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import require
from running import loaded_from_elsewhere, run_lab, settings

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

ARMS = ["one", "full", "zero1-n2", "zero1-all-reduce-n2"]


@pytest.fixture(scope="module")
def finished_run(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Path, dict[str, Any]]:
    """Run a few arms of a one-block model; with ``--slow`` everything in ``--quick``."""
    require("torch")
    require("mindspore")
    out = tmp_path_factory.mktemp("memory") / "out"
    fewer = settings(
        sizes__blocks=1, data__words=100, data__length=16, evaluation__train_samples=20
    )
    whole = request.config.getoption("--slow")
    return out, run_lab(out, "memory", ARMS, *fewer, whole=whole)


def trials(told: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(t["arm"], t["backend"]): t for t in told["trials"]}


def test_every_arm_trains_what_one_rank_trains(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, told = finished_run
    assert {t["status"] for t in told["trials"]} == {"ok"}
    assert {c["verdict"] for c in told["parity"]} == {"equal"}
    serial = json.loads((out / "parity.json").read_text())["serial"]
    verdicts = {(s["arm"], s["backend"]): s["verdict"] for s in serial}
    exact = {place: v for place, v in verdicts.items() if place[0] != "bf16"}
    assert set(exact.values()) == {"equal"}
    assert {(arm, b) for arm in ARMS[1:] for b in ("torch", "mindspore")} <= exact.keys()


def test_both_frameworks_hold_the_closed_form(finished_run: tuple[Path, dict[str, Any]]) -> None:
    _, told = finished_run
    found = trials(told)
    for backend in ("torch", "mindspore"):
        (one,) = found["one", backend]["device_memory"]
        psi = one["parameters"]
        assert [one[part] for part in ("weights", "gradients", "state")] == [
            4 * psi,
            4 * psi,
            8 * psi,
        ]
        for rank in found["zero1-n2", backend]["device_memory"]:
            assert rank["weights"] == rank["gradients"] >= 4 * psi  # with zeros until two divide it
            assert rank["state"] == rank["weights"]


def test_the_way_that_sends_more_does_on_the_wire(
    finished_run: tuple[Path, dict[str, Any]],
) -> None:
    _, told = finished_run
    found = trials(told)
    for backend in ("torch", "mindspore"):
        good, wrong = (found[arm, backend]["sent_bytes"] for arm in ("zero1-n2", ARMS[-1]))
        assert 1.3 < wrong / good < 1.7  # MindSpore may write what is not of these updates


def test_the_report_tells_it(finished_run: tuple[Path, dict[str, Any]]) -> None:
    out, told = finished_run
    page = (out / "report.html").read_text("utf-8")
    for chapter in ("zero", "zero_price", "recompute"):
        assert f'<section id="{chapter}"' in page
    several = ("bf16", "torch") in trials(told)  # precisions, or rules, to tell apart
    assert ('<section id="parameter_bytes"' in page) == several
    assert "The largest distance" in page
    assert not loaded_from_elsewhere(page)
