"""n workers train like one, or exactly as the inexact rule says, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance import parallel
from conformance.backends import create, on_ranks, rank_backends, tolerance

from dualml.common.errors import CommunicationError
from dualml.parallel.aggregation import STRATEGIES
from dualml.parallel.aggregation.staleness import staleness_stats

EXACT = [name for name, kind in STRATEGIES.items() if kind.exact]
#: Sizes of the global batches: 8 divides by 2 and 4, 7 does not, and of 1 most ranks have nothing.
SIZES = [8, 7, 1]


def case(sizes: list[int] = SIZES, **aggregation: Any) -> dict[str, Any]:
    return {"sizes": sizes, "aggregation": aggregation}


CASES = {
    **{f"exact {name}": case(strategy=name) for name in EXACT},
    "exact ring by layers": case(strategy="ring", cut="layers"),
    "one by one ring by layers": case(strategy="ring", cut="layers", bucket_bytes=0),
    "one by one ring": case(strategy="ring", bucket_bytes=0),
    "one by one all_reduce": case(strategy="all_reduce", bucket_bytes=0),
    "max of gradients": case(reduce="max"),
    "max of gradients by all_gather": case(reduce="max", strategy="all_gather"),
    "median of gradients": case(reduce="median", strategy="all_gather"),
    "max of parameters": case(reduce="max", of="parameters"),
    "median of parameters": case(reduce="median", strategy="all_gather", of="parameters"),
    "sum of parameters": case(reduce="sum", of="parameters"),
    "mean": case(reduce="mean"),
    "sum": case(reduce="sum"),
    "parameters": case(of="parameters"),
    "parameters ring": case(of="parameters", strategy="ring"),
    "local": case([8], of="parameters", reduce="mean", every=3),
    "neighbour": case([8], of="parameters", strategy="neighbour"),
    "planned": case(strategy="parameter_server_async"),
    "free": case(strategy="parameter_server_async", arrival="free"),
    "free again": case(strategy="parameter_server_async", arrival="free"),
    "topk": case(compress="topk", fraction=0.05),
    "fp16": case(compress="fp16", strategy="ring"),
}

SAME = ("exact", "one by one", "parameters")  # beginnings of the cases that are one worker's


@pytest.fixture(scope="module", params=rank_backends())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[2, 3])
def rank_results(name: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Run every case on one group of ranks; return case → results of each rank."""
    n, argument = request.param, {"cases": list(CASES.values())}
    found = on_ranks(name, n, "conformance.parallel:train", argument, timeout=30)
    ranks = {title: [r[i] for r in found] for i, title in enumerate(CASES)}
    return {"n": n, "tolerance": tolerance(create(name)), **ranks}


def assert_weights(rank: dict[str, Any], expected: parallel.Weights, tolerance: float) -> None:
    assert rank["weights"].keys() == expected.keys()
    for key, want in expected.items():
        got = np.array(rank["weights"][key])
        assert np.abs(got - want.ravel()).max() <= tolerance * max(1.0, np.abs(want).max()), key


def test_the_helper_can_fail() -> None:
    w = parallel.start()
    rank = {"weights": {k: (v + 1e-3).ravel().tolist() for k, v in w.items()}}
    with pytest.raises(AssertionError):
        assert_weights(rank, w, 1e-6)


@pytest.mark.parametrize("title", [t for t in CASES if t.startswith(SAME)])
def test_n_workers_are_one(rank_results: dict[str, Any], title: str) -> None:
    """n workers equal one, also when n does not divide the batch and when a rank has no sample."""
    losses, weights = parallel.single(SIZES)
    for rank in rank_results[title]:
        assert_weights(rank, weights, rank_results["tolerance"])
        np.testing.assert_allclose(rank["losses"], losses, rtol=rank_results["tolerance"] * 10)


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_other_reductions_do_what_they_say(rank_results: dict[str, Any], reduce: str) -> None:
    losses, weights = parallel.combined(SIZES, rank_results["n"], reduce)
    other = parallel.single(SIZES)[1]
    for rank in rank_results[reduce]:
        assert_weights(rank, weights, rank_results["tolerance"])
        np.testing.assert_allclose(rank["losses"], losses, rtol=rank_results["tolerance"] * 10)
        with pytest.raises(AssertionError):  # and that is not the gradient of the batch
            assert_weights(rank, other, rank_results["tolerance"])


@pytest.mark.parametrize("title", [t for t in CASES if " of " in t])
def test_reductions_entry_by_entry(rank_results: dict[str, Any], title: str) -> None:
    reduce, _, of, *_ = title.split()
    weights = parallel.compared(SIZES, rank_results["n"], reduce, of)
    other = parallel.single(SIZES)[1]
    for rank in rank_results[title]:
        assert_weights(rank, weights, rank_results["tolerance"])
        with pytest.raises(AssertionError):
            assert_weights(rank, other, rank_results["tolerance"])


@pytest.mark.parametrize(("title", "every"), [("local", 3), ("neighbour", 1)])
def test_averaging_parameters(rank_results: dict[str, Any], title: str, every: int) -> None:
    expected = parallel.averaged([8], rank_results["n"], every, title == "neighbour")
    for rank, weights in zip(rank_results[title], expected, strict=True):
        assert_weights(rank, weights, rank_results["tolerance"])


@pytest.mark.parametrize("title", ["planned", "free", "free again"])
def test_the_asynchronous_server_replayed(rank_results: dict[str, Any], title: str) -> None:
    """The float64 loop, run in the order that the server used, finds the same weights and
    staleness."""
    order, n = rank_results[title][0]["served"], rank_results["n"]
    assert sorted((s, r) for s, r, _ in order) == [
        (s, r) for s in range(1, parallel.STEPS + 1) for r in range(n)
    ]
    weights, stale = parallel.simulate_server(SIZES, n, order)
    assert [told for _, _, told in order] == stale
    assert_weights(rank_results[title][0], weights, rank_results["tolerance"])
    assert staleness_stats([tuple(o) for o in order], n)["max"] == max(stale)


def test_top_k_with_error_feedback(rank_results: dict[str, Any]) -> None:
    for rank in rank_results["topk"]:
        assert_weights(
            rank, parallel.top(SIZES, rank_results["n"], 0.05), rank_results["tolerance"]
        )


def test_half_precision_is_near_and_not_equal(rank_results: dict[str, Any]) -> None:
    _, weights = parallel.single(SIZES)
    for rank in rank_results["fp16"]:
        assert_weights(rank, weights, 2e-3)
        with pytest.raises(AssertionError):
            assert_weights(rank, weights, 2e-6)


def test_no_rank_is_left_behind(rank_results: dict[str, Any]) -> None:
    """All ranks have the same parameters after every exact case."""
    for title in CASES:
        if title.startswith(("exact", "mean", "sum", "max", "median")):
            first = rank_results[title][0]["weights"]
            for rank in rank_results[title][1:]:
                assert_weights(
                    rank, {k: np.array(v) for k, v in first.items()}, rank_results["tolerance"]
                )


def test_communication_error_is_a_trial_error() -> None:
    """A trial that cannot communicate fails with a one-line `TrialError`."""
    from dualml.common.errors import TrialError

    assert issubclass(CommunicationError, TrialError)
