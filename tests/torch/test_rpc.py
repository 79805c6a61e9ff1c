"""A model split by `torch.distributed.rpc` computes what the unsplit model computes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import rpc_cases

from dualml.common.errors import TrialError
from dualml.launch.ranks import run_ranks
from dualml.parallel.split.timeline import KINDS

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.system
RPC = {"engine": "rpc"}
CUT = {**RPC, "cut": ["flatten"]}
SERVER = {**RPC, "place": [0, 1, 0]}
#: A loss scale at which about one update in three is skipped.
OVERFLOWS = {"precision": ["fp16", "dynamic"], "enlarged": 10.0}
CASES: dict[int, list[dict[str, Any]]] = {
    2: [
        {"model": "lenet", "rule": "sgd", "split": CUT},
        {"model": "lenet", "rule": "adam", "split": {**SERVER, "micro_batches": 4}},
        {"model": "rnn", "rule": "adam", "split": {**SERVER, "micro_batches": 2}},
        {"model": "lenet", "rule": "sgd", "split": CUT, "precision": ["bf16"]},
        {"model": "lenet", "rule": "adam", "split": SERVER, **OVERFLOWS},
    ],
    3: [
        {"model": "lenet", "rule": "sgd", "split": {**CUT, "micro_batches": 4}},
        {"model": "mlp", "rule": "adam", "split": RPC},
        {"model": "mlp", "rule": "adam", "split": RPC, "precision": ["bf16"]},
        {"model": "mlp", "rule": "sgd", "split": {**RPC, "stages": 3, "micro_batches": 2}},
    ],
}
CLOSE = {"rtol": 2e-5, "atol": 2e-6}


@pytest.fixture(scope="module", autouse=True)
def path() -> Iterator[None]:
    """Let the ranks import what they run from this folder."""
    with pytest.MonkeyPatch.context() as patch:
        before = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *([before] if before else [])]))
        yield


@pytest.fixture(scope="module", params=CASES)
def training_results(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Any:
    """Return the cases, the results of every rank for each, and the text of all logs."""
    size, folder = request.param, tmp_path_factory.mktemp("rpc")
    found = run_ranks(
        "torch", size, "rpc_cases:train", {"cases": CASES[size]}, folder=folder, timeout=30
    )
    logs = "".join(path.read_text() for path in folder.glob("*.log"))
    return CASES[size], found, logs


def test_it_computes_what_the_whole_model_computes(training_results: Any) -> None:
    cases, found, _ = training_results
    for number, case in enumerate(cases):
        want, got = rpc_cases.run_on_one_rank(case), found[0][number]
        assert got["trace"][0] == want["trace"][0]
        for part in ("losses", "evaluation"):
            for a, b in zip(got[part], want[part], strict=True):
                np.testing.assert_allclose(a, b, **CLOSE)
        np.testing.assert_allclose(got["trace"][1], want["trace"][1], **CLOSE)
        for part in ("gradients", "activations", "weights"):
            compare(got[part], want[part])
        assert set(got["state"]) == set(want["state"])
        for slot, named in want["state"].items():
            compare(got["state"][slot], named)


def compare(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert list(got) == list(want)
    for name in want:
        a, b = np.array(got[name]), np.array(want[name])
        assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b) + 1e-12, name


def test_an_update_that_overflows_is_skipped(training_results: Any) -> None:
    """An update that overflows is skipped, as for the unsplit model, whose state is compared
    elsewhere."""
    cases, found, _ = training_results
    for number, case in enumerate(cases):
        scaling = found[0][number]["state"].get("loss_scale")
        assert (scaling is not None) == ("enlarged" in case)
        if scaling is not None:
            assert 1 <= scaling["skipped"] < rpc_cases.STEPS


def test_all_ranks_are_told_the_same(training_results: Any) -> None:
    _, found, _ = training_results
    first, *others = ([{**case, "own": None} for case in rank] for rank in found)
    assert all(other == first for other in others)


def test_the_parameters_are_where_the_plan_says(training_results: Any) -> None:
    cases, found, _ = training_results
    for number, case in enumerate(cases):
        plan = rpc_cases.Split(**case["split"]).plan(rpc_cases.spec_of(case["model"]), len(found))
        told = found[plan.driver][number]["own"]
        ranks = [(rank, plan.rank_stages(rank)[1]) for rank in range(len(found))]
        want = {name: rank for rank, pieces in ranks for name in pieces}
        assert dict(told["held"]) == want
        assert told["optimizers"] == len(set(want.values()))


def test_the_driver_notes_what_it_does(training_results: Any) -> None:
    cases, found, _ = training_results
    for number, _ in enumerate(cases):
        driver = found[0][number]["driver"]
        one = [KINDS.index(kind) for kind in ("F", "B", "update")]
        for rank, told in enumerate(found):
            wanted = one * (2 * rpc_cases.STEPS) if rank == driver else []
            assert told[number]["own"]["kinds"] == wanted


def test_ranks_serve_quietly_on_the_loopback_with_their_threads(training_results: Any) -> None:
    _, found, logs = training_results
    assert logs == ""
    for told in (case for rank in found for case in rank):
        assert told["listening"] == ["127.0.0.1"]
        assert set(told["own"].get("threads", [1])) == {1}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_ends_all_and_is_named(rank: int) -> None:
    case = {"model": "lenet", "rule": "sgd", "split": CUT, "rank": rank}
    begin = time.monotonic()
    with pytest.raises(TrialError, match=rf"rank {rank}: was ended by SIGKILL"):
        run_ranks("torch", 3, "rpc_cases:dies", case, timeout=30)
    assert time.monotonic() - begin < 40


@pytest.mark.parametrize(
    ("late", "why"),
    [
        (False, "rank 2 failed: .*nothing"),
        (True, "no answer within 8 s"),
    ],
)
def test_a_call_that_fails_is_told_in_one_line(late: bool, why: str) -> None:
    case = {"model": "lenet", "rule": "sgd", "split": CUT, "late": late}
    with pytest.raises(TrialError, match=rf"rank 0 of 3, calling rank 2 by rpc: {why}") as told:
        run_ranks("torch", 3, "rpc_cases:fails", case, timeout=8)
    assert "Traceback" not in str(told.value)
