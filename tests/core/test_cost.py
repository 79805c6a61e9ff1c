"""Closed forms equal the schedules' totals and what ranks count."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualml.backend.reference.communicator import run_threads
from dualml.common.errors import UserError
from dualml.common.files import read_json, write_json
from dualml.parallel.aggregation import STRATEGIES, strategy
from dualml.planning.cost import (
    FLAT,
    Cost,
    Link,
    Point,
    Topology,
    cost,
    fit,
    fit_all,
    names,
    predict,
    stages,
)
from dualml.planning.cost.closed_form import has_closed_form
from dualml.planning.cost.engines import broadcast, schedule
from dualml.planning.cost.fits import Fits
from dualml.planning.cost.model import PARAMETERS, Fit

SCHEDULED = [name for name in names() if name not in ("local_sgd", "parameter_server_async")]
COUNTED = [name for name in SCHEDULED if STRATEGIES[name].is_point_to_point]
CLOSED = [name for name in SCHEDULED if has_closed_form(name)]
WIDTH = 4
#: Lengths that do and do not divide evenly, and one shorter than the number of ranks.
LENGTHS = (3, 1003, 5040)


def from_schedule(name: str, n: int, length: int) -> dict[str, float]:
    schedule = strategy(name).schedule(n)
    sent = [schedule.sent_volume(r, length) for r in range(n)]
    received = [schedule.received_volume(r, length) for r in range(n)]
    return {
        "sent": max(m for m, _ in sent),
        "received": max(m for m, _ in received),
        "bytes_sent": max(e for _, e in sent) * WIDTH,
        "bytes_received": max(e for _, e in received) * WIDTH,
        "mean_messages": sum(m for m, _ in sent) / n,
        "mean_bytes": sum(e for _, e in sent) * WIDTH / n,
        "total_messages": sum(m for m, _ in sent),
        "total_bytes": sum(e for _, e in sent) * WIDTH,
    }


def cost_fields(found: Cost) -> dict[str, float]:
    return {k: v for k, v in vars(found).items() if k not in ("steps", "bytes", "added")}


@pytest.mark.parametrize("name", SCHEDULED)
def test_the_closed_form_is_what_the_schedule_says(name: str) -> None:
    for n, length in itertools.product(range(1, 18), LENGTHS):
        assert cost_fields(cost(name, n, length * WIDTH, WIDTH)) == from_schedule(name, n, length)


def test_the_comparison_notices_one_message_less() -> None:
    ring = from_schedule("ring", 5, 1003)
    assert cost_fields(cost("ring", 5, 4012, WIDTH)) == ring
    assert cost_fields(replace(cost("ring", 5, 4012, WIDTH), sent=7)) != ring
    assert cost_fields(cost("ring", 5, 4012)) != ring  # bytes may be cut where elements may not


@pytest.mark.parametrize("name", COUNTED)
def test_the_closed_form_is_what_ranks_count(name: str) -> None:
    def work(comm: object) -> dict[str, int]:
        strategy(name).sum(comm, np.ones(1003, np.float32))  # type: ignore[arg-type]
        return comm.traffic.describe()  # type: ignore[attr-defined,no-any-return]

    for n in (1, 2, 3, 4, 5, 6, 8):
        counted, expected = run_threads(n, work), cost(name, n, 4012, 4)
        for key in ("sent", "received", "bytes_sent", "bytes_received"):
            assert max(rank[key] for rank in counted) == getattr(expected, key)
        assert sum(rank["bytes_sent"] for rank in counted) == expected.total_bytes
        assert sum(rank["sent"] for rank in counted) == expected.total_messages


def test_textbook_values() -> None:
    size = 4_000_000
    ring, tree = cost("ring", 8, size), cost("tree", 8, size)
    assert (ring.steps, ring.bytes, ring.added) == (14, 2 * 7 * size // 8, 7 * size // 8)
    assert (tree.steps, tree.bytes, tree.added) == (6, 6 * size, 3 * size)
    halving = cost("halving_doubling", 8, size)
    assert (halving.steps, halving.bytes, halving.added) == (6, ring.bytes, ring.added)
    odd = cost("halving_doubling", 9, size)
    assert (odd.steps, odd.bytes) == (8, halving.bytes + 2 * size)
    server = cost("parameter_server", 8, size)
    assert (server.steps, server.bytes, server.mean_bytes) == (14, 14 * size, 14 * size / 8)
    assert cost("local_sgd", 8, size, every=7).bytes == ring.bytes / 7
    asynchronous = cost("parameter_server_async", 8, size)
    assert (asynchronous.bytes_received, asynchronous.total_bytes) == (8 * size, 16 * size)


def check_bounds(name: str, n: int, size: int) -> None:
    """Check that no all-reduce moves fewer bytes than the ring, and none fewer than 2 (n − 1) S."""
    found = cost(name, n, size)
    assert found.bytes_sent >= found.mean_bytes >= 0
    assert found.bytes + 1e-9 >= found.mean_bytes
    if STRATEGIES[name].exact:
        assert found.total_bytes >= 2 * (n - 1) * size or name == "all_gather"


@given(n=st.integers(1, 100_000), size=st.integers(0, 10**10))
@settings(max_examples=60, deadline=None)
def test_any_number_of_ranks(n: int, size: int) -> None:
    for name in CLOSED:
        check_bounds(name, n, size)
        assert len(stages(name, n, size)) <= 36


@given(n=st.integers(1, 17), size=st.integers(0, 10**10))
@settings(max_examples=30, deadline=None)
def test_a_few_ranks_without_a_closed_form(n: int, size: int) -> None:
    for name in SCHEDULED:
        check_bounds(name, n, size)


def test_a_closed_form_that_is_gone_is_noticed() -> None:
    """Others, also a new one without a closed form, are priced message by message: a few ranks."""
    assert set(CLOSED) >= {
        *("all_reduce", "all_gather", "reduce_broadcast", "reduce_scatter_all_gather"),
        *("parameter_server", "ring", "tree", "halving_doubling", "hierarchical", "neighbour"),
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("rign", 4, 8), "did you mean 'ring'"),
        (("ring", 0, 8), "at least 1 rank; received n = 0"),
        (("ring", 4, 10, 4), "whole number of elements"),
        (("local_sgd", 4, 8, 1, 0), "every k ≥ 1"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[object, ...], told: str) -> None:
    with pytest.raises(UserError, match=told):
        cost(*arguments)  # type: ignore[arg-type]


TRUE = Link(4e-5, 8e-10, 3e-10)
SIZES = (1_000, 40_000, 40_000, 1_000_000, 8_000_000)


def measured(
    link: Link, chosen: tuple[str, ...], noise: float, seed: int = 0, topology: Topology = FLAT
) -> list[Point]:
    """Return the times of a machine with these constants, each with an error of some per cent."""
    draw = np.random.default_rng(seed)
    points = []
    for name in chosen:
        for n in (2, 4, 8):
            for size in SIZES:
                clean = sum(topology.seconds(s, n, link) for s in stages(name, n, size))
                seconds = clean * float(np.exp(noise * draw.standard_normal()))
                points.append(Point.from_measurement(name, n, size, seconds, topology))
    return points


def within_intervals(found: Fit, link: Link) -> list[bool]:
    pairs = ((found.intervals[name], getattr(link, name)) for name in found.intervals)
    return [low <= value <= high for (low, high), value in pairs]


@pytest.mark.parametrize("topology", [FLAT, Topology("shared", 2)], ids=str)
def test_a_fit_recovers_the_constants(topology: Topology) -> None:
    link = Link(TRUE.alpha_s, TRUE.beta_s_per_byte)
    exact = fit(measured(link, ("ring", "tree"), 0, topology=topology))
    assert exact.link.alpha_s == pytest.approx(link.alpha_s, rel=1e-9)
    assert exact.link.beta_s_per_byte == pytest.approx(link.beta_s_per_byte, rel=1e-9)
    assert exact.worst_error < 1e-9
    assert (exact.points, exact.ranks, exact.sizes) == (30, (2, 8), (1_000, 8_000_000))


def test_95_per_cent_intervals_hold_the_truth_about_as_often() -> None:
    hits = [
        within_intervals(
            fit(measured(TRUE, ("ring", "tree", "all_gather"), 0.03, s), gamma=True), TRUE
        )
        for s in range(100)
    ]
    for share in np.mean(hits, axis=0):
        assert 0.88 <= share <= 1.0
    assert len(hits[0]) == len(PARAMETERS)
    other = Link(TRUE.alpha_s * 1.5, TRUE.beta_s_per_byte * 1.5)
    assert not any(within_intervals(fit(measured(TRUE, ("ring", "tree"), 0.03)), other))


def test_a_constant_that_would_be_negative_is_zero() -> None:
    points = [Point(1e-9 * b + 1e-7, s, b) for s, b in ((9, 1e6), (5, 2e6), (1, 3e6))]
    found = fit(points)
    assert found.link.alpha_s >= 0
    falling = [Point(1e-9 * b - 1e-5 * s, s, b) for s, b in ((9, 1e6), (5, 2e6), (1, 3e6))]
    assert fit(falling).link.alpha_s == 0
    assert fit(falling).intervals["alpha_s"][0] == 0


def test_points_that_cannot_tell_are_refused() -> None:
    ring = measured(TRUE, ("ring",), 0)
    with pytest.raises(UserError, match="at least 3 points; received 2"):
        fit(ring[:2])
    with pytest.raises(UserError, match="measure at least two sizes"):
        fit([ring[0]] * 5)
    with pytest.raises(UserError, match="add points of all_gather or neighbour"):
        fit(ring, gamma=True)
    with pytest.raises(UserError, match="cannot tell α from β"):
        fit([Point(1.0, 3, 0), Point(1.1, 3, 0), Point(2.0, 6, 0)])
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(UserError, match="more than 0 seconds"):
            Point.from_measurement("ring", 2, 1000, seconds)
    for name, n, topology in (
        ("ring", 1, FLAT),
        ("parameter_server_async", 2, FLAT),
        ("ring", 2, Topology("nodes", 2)),
    ):
        with pytest.raises(UserError, match="synchronous strategies on at least 2 ranks"):
            Point.from_measurement(name, n, 1000, 1.0, topology)


def test_fits_are_written_and_read(tmp_path: object) -> None:
    fast = Link(1e-5, 1e-10)
    points = measured(TRUE, ("ring", "tree"), 0.02) + measured(fast, ("all_reduce",), 0.02)
    lone = Point.from_measurement("all_gather", 2, 1000, 1e-3)
    found = fit_all([*points, lone])
    path = tmp_path / "fits.json"  # type: ignore[operator]
    write_json(path, {"format": 1, **found.describe()})
    assert Fits.read(path) == found
    assert list(found.skipped) == ["all_gather"]
    assert found.link("all_reduce").alpha_s == pytest.approx(fast.alpha_s, rel=0.1)
    assert found.link("local_sgd") == found.link("all_reduce")
    assert found.link("ring").alpha_s == pytest.approx(TRUE.alpha_s, rel=0.1)
    assert found.point_to_point is not None
    assert found.link("neighbour") == found.point_to_point.link
    with pytest.raises(UserError, match="no fit for tree"):
        Fits(strategies={"ring": found.point_to_point}).link("tree")
    write_json(path, {**read_json(path), "format": 2})
    with pytest.raises(UserError, match="format 2"):
        Fits.read(path)
    path.write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        Fits.read(path)


# --- what engines really send, and nodes ----------------------------------------------------------

#: Vectors sent by each rank, by the counters of network interfaces (benchmarks/network.py).
GLOO = {
    ("all_gather", 2): [1, 1],
    ("all_gather", 4): [3, 3, 3, 3],
    ("reduce_broadcast", 2): [3 / 2, 1],
    ("reduce_broadcast", 3): [8 / 3, 1, 1],
    ("reduce_broadcast", 4): [11 / 4, 2, 1, 1],
    ("parameter_server", 3): [2, 1, 1],
    ("parameter_server", 4): [2, 2, 1, 1],
    ("reduce_scatter_all_gather", 2): [3 / 2, 3 / 2],
    ("reduce_scatter_all_gather", 3): [2, 2, 2],
    ("reduce_scatter_all_gather", 4): [9 / 4] * 4,
}
#: Vectors on the critical path, measured in the same way.
TAKES = {
    ("all_gather", 2): 3 / 2,
    ("all_gather", 3): 2,
    ("reduce_broadcast", 3): 10 / 3,
    ("reduce_broadcast", 4): 9 / 2,
    ("parameter_server", 4): 6,
    ("reduce_scatter_all_gather", 2): 7 / 4,
    ("reduce_scatter_all_gather", 4): 9 / 4,
}


@pytest.mark.parametrize(("name", "n"), GLOO)
def test_gloo_sends_what_the_wire_showed(name: str, n: int) -> None:
    found = schedule("gloo", name, n)
    assert found is not None
    assert [found.sent_volume(r, 840)[1] / 840 for r in range(n)] == pytest.approx(GLOO[name, n])


@pytest.mark.parametrize(("name", "n"), TAKES)
def test_gloo_takes_as_long_as_its_schedule(name: str, n: int) -> None:
    link = Link(0.0, 1e-8)
    took = predict(name, n, 3360, link, width=4, engine="gloo").seconds
    assert took == pytest.approx(TAKES[name, n] * 3360e-8)
    # Where nothing is known of an engine, or of its collective, the textbook's.
    assert predict(name, n, 3360, link, engine="nccl") == predict(name, n, 3360, link)


def test_a_broadcast_reaches_everybody_once() -> None:
    for n in range(2, 18):
        has = {0}
        for step in broadcast(n, 1):
            assert all(t.source in has and t.target not in has for t in step)
            assert len({t.source for t in step}) == len(step)
            has |= {t.target for t in step}
        assert has == set(range(n))


def test_a_fit_goes_on_with_its_engine() -> None:
    link = Link(1e-4, 1e-8)
    sizes = (40_000, 400_000, 4_000_000)
    points = [
        Point.from_measurement(
            "all_gather",
            2,
            size,
            predict("all_gather", 2, size, link, engine="gloo").seconds,
            engine="gloo",
        )
        for size in sizes
    ]
    fits = fit_all(points, engine="gloo")
    assert fits.link("all_gather").beta_s_per_byte == pytest.approx(1e-8)
    assert Fits.restore(fits.describe()).engine == "gloo"
    assert "engine" not in fit_all(points).describe()
    plain = fit_all([Point.from_measurement("all_gather", 2, p.nbytes, p.seconds) for p in points])
    assert plain.link("all_gather").beta_s_per_byte == pytest.approx(1.5e-8)


@pytest.mark.parametrize(("n", "k"), [(4, 2), (6, 2), (8, 4), (8, 2)])
def test_two_levels_leave_less_to_the_link_between_nodes(n: int, k: int) -> None:
    place, size = Topology("nodes", k, Link(1e-5, 1e-7), ports=1), 8_000_000
    ring, two = (
        predict(name, n, size, Link(1e-6, 1e-10), topology=place).seconds
        for name in ("ring", "hierarchical")
    )
    nodes = n // k
    assert ring == pytest.approx(2 * (n - 1) / n * size * 1e-7, rel=0.01)
    assert two == pytest.approx(2 * (nodes - 1) / nodes * size * 1e-7, rel=0.02)
    closed = predict("hierarchical", n, size, Link(1e-6, 1e-10), topology=place, events=0)
    assert closed.seconds == pytest.approx(two, rel=0.02)


@pytest.mark.parametrize(("n", "k"), [(8, 4), (16, 8), (64, 8)])
def test_two_levels_use_the_port_of_every_rank(n: int, k: int) -> None:
    """A ring crosses each node's border once; two levels send a K-th through each of K ports."""
    size, inside, between = 8_000_000, Link(0.0, 1e-12), Link(0.0, 1e-7)
    for ports in range(1, k + 1):
        if k % ports:
            continue
        place = Topology("nodes", k, between, ports)
        for events in (64, 0):
            ring, two = (
                predict(name, n, size, inside, topology=place, events=events).seconds
                for name in ("ring", "hierarchical")
            )
            nodes = n // k
            assert ring == pytest.approx(2 * (n - 1) / n * size * 1e-7, rel=0.01)
            left = 2 * (nodes - 1) / nodes * size / ports * 1e-7
            assert two == pytest.approx(left, rel=0.02)
