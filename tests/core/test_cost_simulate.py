"""Event simulation against closed forms, and the effect of a slow rank on both."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualml.common.errors import UserError
from dualml.parallel.aggregation import CollectiveSchedule, Ring, Transfer, strategy
from dualml.planning.cost import FLAT, Link, Straggler, Topology, cost, names, predict, simulate
from dualml.planning.cost.compare import (
    Range,
    crossover_sentence,
    crossovers,
    fastest,
    straggler_sentence,
)
from dualml.planning.cost.predict import EVENTS

LINK = Link(5e-5, 1e-9, 2e-10)
FAR = Link(2e-4, 8e-9)
SYNCHRONOUS = [name for name in names() if name not in ("local_sgd", "parameter_server_async")]
SHARED, NODES = Topology("shared", 2), Topology("nodes", 4, FAR, ports=1)


def test_one_message() -> None:
    one = CollectiveSchedule(2, 1, ((Transfer(0, 1, 0, 0, "add"),),))
    found = simulate(one, 1000, Link(1.0, 0.01, 0.001), start=[2.0, 5.0])
    assert found.finish == pytest.approx((13.0, 17.0))  # buffered: the sender does not wait
    assert found.transfer == pytest.approx((11.0, 12.0))
    assert found.wait == pytest.approx((0.0, 0.0))
    late = simulate(one, 1000, Link(1.0, 0.01, 0.001), start=[5.0, 2.0])
    assert late.finish[1] == pytest.approx(17.0)
    assert late.wait[1] == pytest.approx(3.0)


def test_a_port_carries_one_message_at_a_time_each_way() -> None:
    both = CollectiveSchedule(
        3, 1, (tuple(Transfer(a, b, 0, 0, "put") for a, b in ((1, 0), (2, 0), (0, 1))),)
    )
    assert simulate(both, 0, Link(1.0, 0.0)).finish == pytest.approx((2.0, 1.0, 1.0))


@pytest.mark.parametrize("name", SYNCHRONOUS)
@pytest.mark.parametrize("topology", [FLAT, SHARED], ids=str)
def test_events_and_closed_forms_agree(name: str, topology: Topology) -> None:
    for n in (1, 2, 3, 5, 6, 8, 12, 17):
        for size in (5, 4_000_003):
            options = {"compute_s": 0.01, "topology": topology}
            events = predict(name, n, size, LINK, **options)  # type: ignore[arg-type]
            closed = predict(name, n, size, LINK, events=0, **options)  # type: ignore[arg-type]
            assert (events.how, closed.how) == ("events", "closed")
            assert events.seconds == pytest.approx(closed.seconds, rel=1e-9)
    if topology is FLAT:
        c = cost(name, 6, 4_000_003)
        expected = LINK.seconds(c.steps, c.bytes, c.added)
        assert predict(name, 6, 4_000_003, LINK).seconds == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize(
    ("topology", "slow", "off"),
    [
        (FLAT, None, 1e-9),
        (NODES, None, 0.02),
        (FLAT, Straggler(3, 3.0), 0.08),
        (FLAT, Straggler(0, latency_s=2e-3, bandwidth_bytes_per_s=1e8), 0.2),
        (FLAT, Straggler(5, jitter_s=2e-3), 0.2),
    ],
    ids=["flat", "nodes", "compute", "port", "jitter"],
)
def test_nothing_jumps_where_closed_forms_take_over(
    name: str, topology: Topology, slow: Straggler | None, off: float
) -> None:
    options = {"slow": slow, "topology": topology}
    events = predict(name, EVENTS, 4_000_000, LINK, 5e-3, **options)  # type: ignore[arg-type]
    closed = predict(name, EVENTS, 4_000_000, LINK, 5e-3, events=0, **options)  # type: ignore[arg-type]
    assert closed.seconds == pytest.approx(events.seconds, rel=off)


@given(
    name=st.sampled_from(SYNCHRONOUS),
    n=st.integers(2, 9),
    starts=st.lists(st.floats(0, 0.01), min_size=9, max_size=9),
    more=st.floats(0, 0.02),
    slow=st.builds(
        Straggler,
        rank=st.integers(0, 8),
        latency_s=st.floats(0, 0.01),
        bandwidth_bytes_per_s=st.one_of(st.none(), st.floats(1e6, 1e10)),
    ),
    topology=st.sampled_from([FLAT, SHARED]),
)
@settings(max_examples=150, deadline=None)
def test_a_slower_rank_makes_nobody_faster(
    name: str,
    n: int,
    starts: list[float],
    more: float,
    slow: Straggler,
    topology: Topology,
) -> None:
    schedule, start, r = strategy(name).schedule(n), starts[:n], slow.rank % n
    well = simulate(schedule, 100_000, LINK, start=start, topology=topology)
    slow = Straggler(r, 1.0, slow.latency_s, slow.bandwidth_bytes_per_s)
    start[r] += more
    ill = simulate(schedule, 100_000, LINK, start=start, slow=slow, topology=topology)
    for before, after in zip(well.finish, ill.finish, strict=True):
        assert after >= before - 1e-12
    assert ill.seconds >= start[r]
    for f, c, t, w in zip(ill.finish, ill.compute, ill.transfer, ill.wait, strict=True):
        assert f == pytest.approx(c + t + w)


def test_whom_a_slow_rank_holds_up() -> None:
    late = [0.1 if r == 4 else 0.0 for r in range(12)]
    ring = simulate(Ring().schedule(12), 1000, LINK, start=late)
    assert min(ring.finish) > 0.1
    one = simulate(strategy("neighbour").schedule(12), 1000, LINK, start=late)
    assert [r for r, t in enumerate(one.finish) if t > 0.1] == [3, 4, 5]


def test_a_slow_server_costs_more_than_a_slow_worker() -> None:
    server, worker = (
        predict("parameter_server", 8, 10**6, LINK, slow=Straggler(r, latency_s=5e-3)).seconds
        for r in (0, 3)
    )
    well = predict("parameter_server", 8, 10**6, LINK).seconds
    assert server == pytest.approx(well + 14 * 5e-3)
    assert well < worker <= well + 2 * 5e-3 + 1e-12


def test_jitter_is_drawn_from_its_seed_and_has_its_mean() -> None:
    slow = Straggler(1, jitter_s=2e-3)

    def seconds(seed: int) -> float:
        return predict("ring", 2, 1000, LINK, slow=slow, seed=seed).seconds

    assert seconds(3) == seconds(3) != seconds(4)
    # Both ranks of a ring of two wait for its computation, once an update.
    mean = sum(seconds(s) for s in range(5)) / 5
    well = predict("ring", 2, 1000, LINK).seconds
    assert mean - well == pytest.approx(2e-3, rel=0.1)
    closed = predict("ring", 2, 1000, LINK, slow=slow, events=0).seconds
    assert closed - well == pytest.approx(2e-3)
    # k computations, k delays, one aggregation.
    local = predict("local_sgd", 2, 1000, LINK, slow=slow, every=20).seconds
    assert local - predict("local_sgd", 2, 1000, LINK, every=20).seconds == pytest.approx(
        2e-3, rel=0.1
    )


def test_nodes_share_a_port() -> None:
    size, away = 10**6, FAR.seconds(1, 10**6)
    pairs = tuple(Transfer(r, r + 4, 0, 0, "put") for r in range(4))
    assert simulate(
        CollectiveSchedule(8, 1, (pairs,)), size, LINK, topology=NODES
    ).seconds == pytest.approx(4 * away)
    within = tuple(Transfer(r, r ^ 1, 0, 0, "put") for r in range(8))
    found = simulate(CollectiveSchedule(8, 1, (within,)), size, LINK, topology=NODES)
    assert found.seconds == pytest.approx(LINK.seconds(1, size))
    # One rank alone on the last node: of the eight others, one at a time sends to it.
    events, closed = (
        predict(
            "all_gather", 9, size, LINK, topology=Topology("nodes", 8, FAR, ports=1), events=e
        ).seconds
        for e in (EVENTS, 0)
    )
    assert events == pytest.approx(8 * (away + LINK.gamma_s_per_byte * size), rel=0.01)
    assert closed == pytest.approx(events, rel=0.01)
    alone = Topology("nodes", 1, FAR)
    for name in SYNCHRONOUS:
        flat = predict(name, 6, size, Link(FAR.alpha_s, FAR.beta_s_per_byte)).seconds
        assert predict(name, 6, size, FAR, topology=alone).seconds == pytest.approx(flat)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_shared_machine_is_no_faster_than_its_cores(n: int) -> None:
    beta = Link(0.0, 1e-9)
    found = predict("ring", n, 10**6, beta, 1e-2, topology=SHARED)
    assert found.compute_s == 1e-2 * n / 2
    moved = cost("ring", n, 10**6).total_bytes * 1e-9 / 2
    assert found.seconds - found.compute_s == pytest.approx(moved, rel=1e-5)
    many = predict("ring", n, 10**6, beta, 1e-2, topology=Topology("shared", 64)).seconds
    assert many == pytest.approx(predict("ring", n, 10**6, beta, 1e-2).seconds)


def test_local_sgd_and_the_asynchronous_server() -> None:
    ring = predict("ring", 8, 10**6, LINK).seconds
    local = predict("local_sgd", 8, 10**6, LINK, 1e-3, every=20)
    assert local.seconds == pytest.approx(1e-3 + ring / 20)

    def server(n: int, slow: Straggler | None = None) -> float:
        return predict("parameter_server_async", n, 10**6, LINK, 1e-2, slow=slow).seconds

    message, adding = LINK.seconds(1, 10**6), 2e-10 * 10**6
    assert server(2) == pytest.approx(1e-2 + 2 * message + adding)  # the workers are the limit
    assert server(100) == pytest.approx(100 * (message + adding))  # the server is
    # Nobody waits for the slow one: its share of the updates is missing, no more.
    assert server(4) < server(4, Straggler(0, 10.0)) < 4 / 3 * server(4)
    assert server(1) == 1e-2


def test_the_slow_rank_of_a_run_is_the_one_of_the_model() -> None:
    """A straggler means the same in a run and in a prediction."""
    from dualml.parallel.aggregation.straggler import Straggler as Run

    assert Straggler is Run
    slow = Straggler(1, compute=3.0, latency_s=2e-3, jitter_s=1e-3, since=7)
    delay = slow.compute_delay(1, 1e-2, 7, seed=0)
    assert delay > 2 * 1e-2
    found = predict("ring", 2, 1000, LINK, 1e-2, slow=slow, events=0).seconds
    well = predict("ring", 2, 1000, LINK, 1e-2).seconds
    assert found - well == pytest.approx(2 * 1e-2 + 1e-3 + 2 * 2e-3)


@pytest.mark.parametrize(
    ("slow", "told"),
    [
        (Straggler(4), "slow rank 4: with n = 4, ranks go from 0 to 3"),
        (Straggler(0, 0.0), "compute factor above 0"),
        (Straggler(0, latency_s=-1.0), "latency and a jitter from 0"),
        (Straggler(0, bandwidth_bytes_per_s=0.0), "bandwidth of a slow rank must be above 0"),
    ],
)
def test_a_slow_rank_that_cannot_be(slow: Straggler, told: str) -> None:
    with pytest.raises(UserError, match=told):
        predict("ring", 4, 1000, LINK, slow=slow)


def test_other_input_that_cannot_be() -> None:
    with pytest.raises(UserError, match="start times for 1 ranks; the schedule has 2"):
        simulate(Ring().schedule(2), 8, LINK, start=[0.0])
    with pytest.raises(UserError, match="0 seconds or more"):
        predict("ring", 2, 8, LINK, math.nan)
    with pytest.raises(UserError, match="alpha_s=-1"):
        Link(-1.0, 0.0)
    for text in ("nodes", "nodes:0", "ring:2", "flat:2", "shared:x", "nodes:2:0", "shared:2:1"):
        with pytest.raises(UserError, match="use flat, nodes:K"):
            Topology.parse(text)
    with pytest.raises(UserError, match="from 1 port to one for each of its ranks"):
        Topology.parse("nodes:4:5")
    for text in ("flat", "nodes:8", "nodes:8:2", "shared:2"):
        assert str(Topology.parse(text)) == text


def test_crossovers_are_found_to_the_rank() -> None:
    size = 207_608

    def seconds(name: str, n: int) -> float:
        return predict(name, n, size, LINK, events=0).seconds

    found = crossovers("ring", "tree", 2, 1000, seconds)
    assert [r.winner for r in found] == ["ring", "tree"]
    last = found[0].last
    assert seconds("ring", last) < seconds("tree", last)
    assert seconds("ring", last + 1) > seconds("tree", last + 1)
    assert crossover_sentence("ring", "tree", found, "en") == (
        f"ring and tree: up to n = {last} ring is faster, from n = {last + 1} on tree."
    )
    assert f"从 n = {last + 1} 起 tree 较快" in crossover_sentence("ring", "tree", found, "zh")
    same = crossovers("ring", "all_reduce", 2, 100, seconds)
    assert same == [Range(2, 100, None)]
    assert "take the same time" in crossover_sentence("ring", "all_reduce", same, "en")


@given(st.lists(st.integers(2, 999), max_size=6, unique=True).map(sorted))
@settings(deadline=None)
def test_ranges_cover_everything_once(changes: list[int]) -> None:
    def seconds(name: str, x: int) -> float:
        ahead = sum(c <= x for c in changes) % 2
        return 1.0 + (ahead if name == "a" else 1 - ahead)

    found = crossovers("a", "b", 1, 1000, seconds)
    assert (found[0].first, found[-1].last) == (1, 1000)
    for one, other in itertools.pairwise(found):
        assert other.first == one.last + 1
        assert other.winner != one.winner
    for r in found:
        assert r.winner == ("a" if seconds("a", r.first) < seconds("b", r.first) else "b")


def test_a_strategy_that_wins_on_both_sides_of_a_tie_is_named_once() -> None:
    ties = {40_000: 1.0, 40_001: 1.0}

    def seconds(name: str, x: int) -> float:
        return ties.get(x, 0.5 + 0.5 * (x > 40_010)) if name == "tree" else 1.0 - 0.2 * (x > 40_010)

    found = crossovers("tree", "ring", 1000, 100_000, seconds)
    assert found == [Range(1000, 40_010, "tree"), Range(40_011, 100_000, "ring")]


def test_the_fastest_gives_the_whole_sum() -> None:
    column = {"neighbour": 1.0, "ring": 3.0, "all_reduce": 3.0, "tree": 4.0, "local_sgd": 0.1}
    assert fastest(column) == ["ring", "all_reduce"]
    assert fastest({"ring": 1.0, "neighbour": 0.5}) == []
    told = straggler_sentence({"ring": 4.0, "tree": 3.0}, {"ring": 1.0, "tree": 2.0}, 8, "en")
    assert told == "With n = 8 the slow rank costs tree least (×1.5) and ring most (×4)."
