"""The search for causes as a function of candidates, budget and evaluation, and its log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dualml.common.errors import UserError
from dualml.parity.causes.assessment import AssessmentRecord, Prior
from dualml.parity.causes.inquiry import Budget, Finding, Proposal, Source, Survey
from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.replay import read_search, replay
from dualml.parity.causes.search import search
from dualml.parity.engine import MAX_STRETCH, make_clock
from dualml.parity.search_log import SearchLog

NEAR = tuple(Mutation("attribute", "set", (n,), "norm", "eps", 0.1 * n, 0.0) for n in range(1, 5))
START = AssessmentRecord((), "different", "", 2, (1, 0), 8, 99.0, 1, "forward", "value", 0.5)
PRIOR = Prior(False, 0.0, True, False)


class Host:
    """A host without a model: `RIGHT` makes both sides equal, every other mutation nothing."""

    RIGHT = NEAR[2]

    def __init__(self) -> None:
        self.now = 0.0
        self.tried: list[Mutation] = []

    def clock(self) -> float:
        return self.now

    def evaluate(
        self, now: AssessmentRecord | None, change: Mutation | None
    ) -> AssessmentRecord | None:
        self.now += 1.0
        if now is None or change is None:
            return START
        self.tried.append(change)
        verdict = "equal" if change == self.RIGHT else "different"
        changes = (*now.changes, change)
        return replace(START, changes=changes, verdict=verdict, prior=PRIOR, results="x")

    def survey(self, now: AssessmentRecord) -> Survey:
        return Survey(("begun",))

    def propose(self, now: AssessmentRecord, source: Source) -> Proposal:
        return Proposal(NEAR, tried=9) if source.name == "near" else Proposal()

    def widen(self, now: AssessmentRecord, change: Mutation, wide: bool) -> tuple[Mutation, ...]:
        return (change,)

    def settle(self, now: AssessmentRecord, changes: tuple[Mutation, ...]) -> Finding:
        return Finding(changes)

    def relate(self, now: AssessmentRecord) -> list[dict[str, Any]]:
        return [{"key": "ratio", "value": float("inf")}]


class Unexplained(Host):
    RIGHT = Mutation("none", "none", ())


class Many(Unexplained):
    def propose(self, now: AssessmentRecord, source: Source) -> Proposal:
        near = super().propose(now, source)
        return replace(near, mutations=100 * near.mutations)

    def widen(self, now: AssessmentRecord, change: Mutation, wide: bool) -> tuple[Mutation, ...]:
        return (change.with_sites((len(self.tried),)),)


def searched(make: Callable[[], Host], seconds: float = 60.0) -> tuple[Any, SearchLog, Host]:
    host = make()
    return *search(host, Budget(seconds, host.clock), host.evaluate), host


def test_the_mutation_that_makes_both_sides_equal_is_the_cause() -> None:
    found, _, host = searched(Host)
    assert [one.alterations for one in found.causes] == [(Host.RIGHT,)]
    assert found.equal
    assert not found.late
    assert found.tried[0] >= 9
    assert host.tried.count(Host.RIGHT) >= 1


def test_without_a_cause_there_are_relations() -> None:
    found, *_ = searched(Unexplained)
    assert not found.causes
    assert found.evidence[0]["key"] == "ratio"


def test_the_search_ends_with_its_time() -> None:
    found, _, host = searched(Many, seconds=2.0)
    assert found.late
    # The first stage takes the time of `Budget.min_runs` runs; each of the two others may still
    # take `Budget.last_s` seconds.
    assert len(host.tried) <= 8 + 2 * 6


@pytest.mark.parametrize("make", [Host, Unexplained])
def test_a_log_is_written_read_and_replayed_without_the_model(
    make: Callable[[], Host], tmp_path: Path
) -> None:
    found, log, _ = searched(make)
    log.write(tmp_path / "search.jsonl")
    again = read_search(tmp_path / "search.jsonl")
    assert again == log
    assert replay(again) == found


def test_a_log_of_another_search_is_refused(tmp_path: Path) -> None:
    _, log, _ = searched(Host)
    other = SearchLog([*log.exchanges])
    at = next(n for n, one in enumerate(other.exchanges) if one.kind == "widen")
    other.exchanges[at] = replace(other.exchanges[at], question=(Unexplained.RIGHT, True))
    with pytest.raises(UserError, match="in its log"):
        replay(other)
    with pytest.raises(UserError, match="ends before"):
        replay(SearchLog(log.exchanges[:-1]))
    path = tmp_path / "search.jsonl"
    for text in ("{", "[]\n", '{"dict": [["kind", {"Unknown": {}}]]}\n'):
        path.write_text(text)
        with pytest.raises(UserError, match="not the log"):
            read_search(path)


def test_a_search_counts_its_own_work() -> None:
    """A process that waits for the processor is charged for a part of that time."""
    wall, work, clock = time.monotonic(), time.process_time(), make_clock()
    time.sleep(0.4)
    waited = clock()
    passed = time.monotonic() - wall
    assert 0.4 / MAX_STRETCH <= waited <= max(passed / MAX_STRETCH, time.process_time() - work)
    before, work = clock(), time.process_time()
    while time.process_time() < work + 0.5:
        pass
    assert clock() >= 0.5 > before
