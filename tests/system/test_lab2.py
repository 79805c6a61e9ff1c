"""Lab 2 as a user runs it: real ranks of both frameworks, and everything the page shows of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import require
from running import loaded_from_elsewhere

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    require("torch")
    require("mindspore")
    out = tmp_path_factory.mktemp("lab2") / "out"
    words = ["dualml", "run", "lab2", "--quick", "--backend", "both", "--out", str(out), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, timeout=380, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out, json.loads(done.stdout)


def test_every_trial_of_both_frameworks_succeeds(ran: tuple[Path, dict[str, Any]]) -> None:
    _, told = ran
    assert {t["status"] for t in told["trials"]} == {"ok"}
    assert {t["backend"] for t in told["trials"]} == {"torch", "mindspore"}
    assert {c["verdict"] for c in told["parity"]} == {"equal"}


def test_n_workers_are_one_on_both_frameworks(ran: tuple[Path, dict[str, Any]]) -> None:
    out, _ = ran
    serial = json.loads((out / "parity.json").read_text())["serial"]
    found = {(c["arm"], c["backend"]): c["verdict"] for c in serial}
    for arm in ("all-reduce-n2", "ring-n2", "parameter-server-n2"):
        assert found[arm, "torch"] == found[arm, "mindspore"] == "equal"
    assert found["sum", "torch"] is None


def test_the_slow_node_is_seen_and_its_peers_wait(ran: tuple[Path, dict[str, Any]]) -> None:
    _, told = ran
    for trial in told["trials"]:
        if trial["arm"] != "slow-compute-all-reduce":
            continue
        fast, slow = trial["ranks"]
        assert slow["compute_s"] > 1.5 * fast["compute_s"]
        assert fast["wait_s"] > slow["wait_s"]


def test_both_frameworks_say_how_they_did_it(ran: tuple[Path, dict[str, Any]]) -> None:
    _, told = ran
    how = {t["backend"]: t["how"] for t in told["trials"] if t["arm"] == "micro-n2"}
    assert how["torch"]["reduce"].startswith("native")
    assert how["mindspore"]["reduce"].startswith("composed")


def test_the_report_has_its_pictures(ran: tuple[Path, dict[str, Any]]) -> None:
    out, _ = ran
    page = (out / "report.html").read_text("utf-8")
    assert page.count("<svg") > 8
    assert not loaded_from_elsewhere(page)
    assert (out / "cost.json").is_file()
