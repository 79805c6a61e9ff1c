"""Every backend's communicator has the same semantics, checked on 2, 3 and 4 ranks.

Each group of processes is started once and runs every check of `collectives.py`.
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any

import numpy as np
import pytest
from conformance import collectives
from conformance.backends import HERE, REFEREE, on_ranks, rank_backends
from conformance.collectives import CHECKS
from conformance.contributions import Failures, reduced, values

from dualml.backend import backends

SIZES = (2, 3, 4)
BACKENDS = rank_backends()


def gaps() -> dict[tuple[str, str], str]:
    """Return (backend, check) → why it cannot pass; strict, so that a closed gap is noticed."""
    path = HERE.parent / "known_gaps.toml"
    known = tomllib.loads(path.read_text("utf-8")).get("gap", []) if path.exists() else []
    return {(gap["backend"], gap["check"]): gap["reason"] for gap in known}


@cache
def outcome(backend: str, size: int, function: str, check: bool = False) -> Any:
    """Return the results of each rank, or the error that kept the group from working."""
    target = f"conformance.collectives:{function}"
    try:
        return on_ranks(backend, size, target, timeout=20, limit=240, check=check)
    except Exception as error:
        return error


def run_or_fail(
    backend: str, size: int, function: str, check: bool = False
) -> list[dict[str, str]]:
    found = outcome(backend, size, function, check)
    if isinstance(found, Exception):
        pytest.fail(f"{backend} on {size} ranks: {found}")
    assert len(found) == size
    return list(found)


def cases() -> list[Any]:
    known = gaps()
    return [
        pytest.param(
            backend,
            size,
            check,
            id=f"{backend}-{size}-{check}",
            marks=[pytest.mark.xfail(strict=True, reason=known[backend, check])]
            if (backend, check) in known
            else [],
        )
        for backend in BACKENDS
        for size in SIZES
        for check in CHECKS
    ]


@pytest.mark.parametrize(("backend", "size", "check"), cases())
def test_communicator(backend: str, size: int, check: str) -> None:
    found = {rank: told[check] for rank, told in enumerate(run_or_fail(backend, size, "run_all"))}
    wrong = [f"rank {rank}: {text}" for rank, text in found.items() if text]
    assert not wrong, "\n".join(wrong)


#: Case → what the error names: every rank's request, or the missing rank.
TOLD = {
    "shapes": ["rank 0: all_reduce float32 (4,)", "rank 1: all_reduce float32 (2,)"],
    "types": ["rank 0: all_reduce float32", "rank 1: all_reduce float64"],
    "operations": ["rank 1: all_reduce float32 (4,) op=max", "rank 2: all_reduce", "op=sum"],
    "roots": ["rank 0: broadcast float32 (4,) op=sum root=0", "root=1"],
    "order": ["rank 0: all_reduce", "rank 1: broadcast", "rank 2: all_reduce"],
    "groups": ["rank 0: subgroup [0]", "rank 1: subgroup [1]"],
}


@pytest.mark.parametrize("case", TOLD)
@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_that_disagree_are_all_told_who_asks_for_what(backend: str, case: str) -> None:
    for rank, told in enumerate(run_or_fail(backend, 3, "disagreements", check=True)):
        for words in TOLD[case]:
            assert words in told[case], (rank, told[case])


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_that_wait_are_told_who_is_missing(backend: str) -> None:
    for rank, told in enumerate(run_or_fail(backend, 3, "disagreements", check=True)):
        if rank == 1:
            assert told["absence"] == ""
        else:
            assert "missing: rank 1 of 3" in told["absence"]


RUN_ALL = "conformance.collectives:run_all"

# The checks can fail: the comparison notices what is off, and a rank that errs is told apart.


def test_the_comparison_sees_a_difference() -> None:
    a = np.array([1.0, 2.0], np.float32)
    for other in (a * np.float32(1.001), a.astype(np.float64), a[:1], a * np.float32(np.nan)):
        wrong = Failures()
        wrong.expect_equal(other, a, "other", 1e-6)
        with pytest.raises(AssertionError):
            wrong.assert_none()
    fine = Failures()
    fine.expect_equal(a.copy(), a, "same")
    fine.assert_none()


def test_the_bound_is_tighter_than_a_missing_rank() -> None:
    for dtype in ("float16", "float32", "float64"):
        arrays = [values(rank, (50,), dtype) for rank in range(4)]
        for op in ("sum", "mean", "prod"):
            want, bound = reduced(arrays, op)
            assert np.abs(reduced(arrays[:3], op)[0].astype(float) - want).max() > 4 * bound


def test_a_failed_check_is_reported_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def err(comm: Any) -> None:
        assert comm.rank != 1, "rank 1 errs"

    monkeypatch.setitem(collectives.CHECKS, "arithmetic", err)
    first, second = on_ranks(REFEREE.name, 2, RUN_ALL, ["arithmetic", "barrier"])
    assert first == {"arithmetic": "", "barrier": ""}
    assert second["arithmetic"].startswith("rank 1 errs")
    assert second["barrier"] == ""


def test_the_rest_is_not_run_in_a_broken_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(comm: Any) -> None:
        if comm.rank == 1:
            raise RuntimeError("gone")

    monkeypatch.setitem(collectives.CHECKS, "arithmetic", leave)
    for told in on_ranks(REFEREE.name, 2, RUN_ALL, ["arithmetic", "barrier"], timeout=5):
        assert told["barrier"] == "not run: the group did not survive arithmetic"


def test_known_gaps_name_checks_that_exist() -> None:
    for backend, check in gaps():
        assert backend in backends()
        assert check in CHECKS
