"""Lab 4 and the parameter-server RNN as a user runs them, on real ranks of both frameworks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conformance.backends import require
from running import run_lab, settings

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

ARMS = ["whole", "by-layer", "inside", "rpc-3", "deep", "micro-8"]
TRAINERS = ["whole", "two-trainers", "two-trainers-asynchronous"]
Ran = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def lab4(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run few updates of some arms: the whole lab takes ten minutes and has no other parts."""
    require("torch")
    require("mindspore")
    out = tmp_path_factory.mktemp("lab4") / "out"
    fewer = [w for arm in ARMS for w in ("--set", f"arms.{arm}.updates=6")]
    fewer += settings(data__train=400, data__test=50, evaluation__train_samples=50)
    return out, run_lab(out, "lab4", ARMS, *fewer)


@pytest.fixture(scope="module")
def rnn_ps(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    require("torch")
    require("mindspore")
    out = tmp_path_factory.mktemp("rnn_ps") / "out"
    fewer = [w for arm in TRAINERS for w in ("--set", f"arms.{arm}.updates=20")]
    return out, run_lab(out, "rnn_ps", TRAINERS, "--data", "sentences", *fewer)


def statuses(told: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(t["arm"], t["backend"]): t["status"] for t in told["trials"]}


def serial(out: Path) -> dict[tuple[str, str], str | None]:
    found = json.loads((out / "parity.json").read_text("utf-8"))["serial"]
    return {(c["arm"], c["backend"]): c["verdict"] for c in found}


def test_every_split_is_the_whole_model_on_both_frameworks(lab4: Ran) -> None:
    out, told = lab4
    found = statuses(told)
    assert found.pop(("rpc-3", "mindspore")) == "unsupported"
    assert set(found.values()) == {"ok"}
    verdicts = serial(out)
    split = [arm for arm in ARMS if arm not in ("whole", "deep")]
    expected = {(a, b) for a in split for b in ("torch", "mindspore")} - {("rpc-3", "mindspore")}
    assert set(verdicts) == expected
    assert set(verdicts.values()) == {"equal"}
    pairs = {c["verdict"] for c in told["parity"] if c["arm"] != "rpc-3"}
    assert pairs == {"equal"}


def test_the_ranks_tell_where_their_time_and_memory_went(lab4: Ran) -> None:
    _, told = lab4
    for trial in told["trials"]:
        if trial["arm"] == "micro-8":
            assert len(trial["ranks"]) == len(trial["memory"]) == 2
            assert 0 < trial["split"]["bubble"] < 1
            samples = trial["sample_gradients"] / trial["updates"]  # the last batch is a short one
            for link in trial["split"]["links"]:
                assert link["bytes"] == pytest.approx(samples * 512 * 4)
            live = [rank["live"] for rank in trial["memory"]]
            assert live == [2, 1]
            for rank in trial["ranks"]:
                parts = ("compute_s", "transfer_s", "wait_s")
                assert all(rank[part] >= 0 for part in parts)
                assert sum(rank[part] for part in parts) <= 1.05 * rank["step_s"]


def test_the_report_of_split_models(lab4: Ran) -> None:
    out, _ = lab4
    page = (out / "report.html").read_text("utf-8")
    for arm in ARMS:
        assert arm in page


def test_trainers_on_a_server_compute_what_one_rank_computes(rnn_ps: Ran) -> None:
    out, told = rnn_ps
    assert set(statuses(told).values()) == {"ok"}
    verdicts = serial(out)
    for backend in ("torch", "mindspore"):
        assert verdicts["two-trainers", backend] == "equal"
        assert verdicts["two-trainers-asynchronous", backend] is None  # another rule, on purpose
    assert {c["verdict"] for c in told["parity"]} == {"equal"}
    for trial in told["trials"]:
        assert 1 < trial["test_perplexity"] < 200
