"""Collectives of the planner against closed forms, measured curves and the simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dualml.planning.cost import Link, predict
from dualml.planning.cost.topology import Topology
from dualml.planning.planner.cluster import Cluster, Efficiency
from dualml.planning.planner.collectives import (
    exchange_seconds,
    gather_seconds,
    ring_seconds,
    sum_seconds,
    tree_seconds,
)
from dualml.planning.planner.devices import find_device
from dualml.planning.planner.request import make_cluster

IDEAL = Efficiency(products=1.0, traffic=0.0, links=1.0)
INSIDE, BETWEEN = Link(5e-6, 1 / 300e9), Link(2e-5, 1 / 25e9)


def cluster(devices: int, **changes: object) -> Cluster:
    made = Cluster(devices, 8, 80e9, 312e12, 2e12, INSIDE, BETWEEN, IDEAL)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_alone_nothing_is_sent() -> None:
    one = np.array([1, 1])
    for seconds in (gather_seconds, sum_seconds, exchange_seconds):
        assert (seconds(cluster(64), one, np.array([1, 8]), 1e9) == 0).all()


def test_a_sum_takes_the_faster_of_ring_and_tree() -> None:
    """A ring has 2(n − 1) messages and moves 2(n − 1)/n·S; a tree has 2⌈log₂ n⌉ and moves 2S."""
    place, n = cluster(1024), np.array([1024])
    alpha, beta = place.link(n, 1)
    small, large = 1e3, 1e14
    assert sum_seconds(place, n, 1, small) == pytest.approx(tree_seconds(n, small, alpha, beta))
    assert tree_seconds(n, small, alpha, beta) == pytest.approx(20 * alpha + 2 * small * beta)
    rings = 2 * ring_seconds(n, large, alpha, beta)
    assert sum_seconds(place, n, 1, large) == pytest.approx(rings)


def test_a_switch_adds_up_inside_a_node_only() -> None:
    plain, switch = cluster(64), cluster(64, switch_sums=274e9)
    inside = float(sum_seconds(switch, 8, 1, 1e9))
    assert inside == pytest.approx((1e9 + 15e6) / 274e9)
    assert inside < float(sum_seconds(plain, 8, 1, 1e9))
    # Two devices send less by a ring than the switch adds up; groups across nodes use no switch.
    for n, stride in ((2, 1), (16, 1), (8, 8)):
        assert sum_seconds(switch, n, stride, 1e9) == sum_seconds(plain, n, stride, 1e9)


def test_bandwidth_by_size_as_measured() -> None:
    """Bus bandwidth of an all-reduce among 8 H100s with NVLink SHARP: 138, 181, 242 and 301 GB/s
    for 4, 8, 16 and 32 MiB (nccl-tests in kvcache-ai/Mooncake, pull request 3484), 480 GB/s at most
    (NVIDIA/nccl-tests, issue 212)."""
    place = make_cluster(find_device("h100"), 8, "mixed", IDEAL)
    for mebibytes, measured in ((4, 138e9), (8, 181e9), (16, 242e9), (32, 301e9), (8192, 480e9)):
        nbytes = mebibytes * 2**20
        found = 2 * 7 / 8 * nbytes / float(sum_seconds(place, 8, 1, nbytes))
        assert found == pytest.approx(measured, rel=0.12)
    sizes = np.array([2.0**k for k in range(10, 34)])
    rates = sizes / sum_seconds(place, np.full(24, 8), 1, sizes)
    assert (np.diff(rates) > 0).all()


def test_an_exchange_leaves_by_the_senders_port() -> None:
    """Of 16 devices on two nodes, each sends 7/16 inside its node and 8/16 through its own port."""
    place, nbytes = cluster(16), 1.6e9
    took = float(exchange_seconds(place, 16, 1, nbytes))
    assert took == pytest.approx(BETWEEN.alpha_s + 8 / 16 * nbytes / 25e9)
    inside = float(exchange_seconds(place, 8, 1, nbytes))
    assert inside == pytest.approx(INSIDE.alpha_s + 7 / 8 * nbytes / 300e9)
    shared = cluster(16, reached=replace(IDEAL, ports=0.5))
    assert float(exchange_seconds(shared, 16, 1, nbytes)) == pytest.approx(
        BETWEEN.alpha_s + 8 / 16 * nbytes / 12.5e9
    )


def test_a_node_receives_a_token_once() -> None:
    """Of 4 nodes, 2 copies of a token reach 4(1 − (3/4)²) = 1.75, and very many all 4."""
    place, nbytes = cluster(32, inside=Link(0.0, 0.0)), 3.2e9
    port = nbytes * 24 / 32 / 25e9
    for copies, nodes in ((1, 1.0), (2, 1.75), (64, 4.0)):
        took = float(exchange_seconds(place, 32, 1, nbytes, copies))
        assert took == pytest.approx(BETWEEN.alpha_s + port * nodes / copies, rel=1e-6)


def test_a_ring_waits_for_ports_only_where_it_leaves_a_node() -> None:
    alpha, _ = cluster(64).link(64, 1)
    assert float(alpha) == pytest.approx((BETWEEN.alpha_s + 7 * INSIDE.alpha_s) / 8)
    alpha, _ = cluster(64).link(8, 8)
    assert float(alpha) == pytest.approx(BETWEEN.alpha_s)


def test_a_plan_and_a_simulation_share_ports() -> None:
    """What the planner's rings over 8 nodes take is what two levels take in a simulation, but for
    (n − 1)/n in place of (N − 1)/N."""
    inside, between, size = Link(0.0, 1e-13), Link(0.0, 4e-11), 64_000_000
    place = Topology("nodes", 8, between)
    two = predict("hierarchical", 64, size, inside, topology=place).seconds
    planned = 2 * float(gather_seconds(cluster(64, inside=inside, between=between), 64, 1, size))
    assert planned * (7 / 8) / (63 / 64) == pytest.approx(two, rel=0.02)
