"""Exposed seconds of messages between replicas: hidden by computation, unit by unit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dualml.planning.cost import Link
from dualml.planning.planner.cluster import Cluster, Efficiency
from dualml.planning.planner.engine import PRECISIONS
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.models import find_model
from dualml.planning.planner.seconds import UpdateSeconds, seconds
from dualml.planning.planner.software import PLAIN, find_software, training_software
from dualml.planning.planner.stages import fullest_parameters

MIXED = PRECISIONS["mixed"]
IDEAL = Efficiency(products=1.0, traffic=0.0, links=1.0)
SHAPE = find_model("llama-7b")


def cluster(devices: int, rate: float, overlap: float = 1.0, **changes: object) -> Cluster:
    link = Link(0.0, 1 / rate)
    made = Cluster(devices, devices, 80e9, 300e12, 2e12, link, link, IDEAL, overlap)
    return replace(made, **changes)  # type: ignore[arg-type]


def price(place: Cluster, **axes: object) -> UpdateSeconds:
    batch = int(axes.pop("batch", 64))  # type: ignore[call-overload]
    return seconds(SHAPE, Layouts.from_axes(batch, **axes), place, MIXED, True)  # type: ignore[arg-type]


def test_fast_links_hide_all_but_the_ends() -> None:
    """Exposed are the first two gathers and the last two reductions: of L + 1 equal units, 2 of
    gathers and 2 of reductions."""
    place = cluster(8, 1e14)
    unit = SHAPE.parameters * 2 * 7 / 8 / 1e14 / (SHAPE.layers + 1)
    took = price(place, dp=8, zero=3, micro=8).replicas[0]
    assert took == pytest.approx(4 * unit, rel=1e-9)


def test_without_overlap_every_byte_is_exposed() -> None:
    bare = cluster(8, 1e11, overlap=0.0)
    whole = SHAPE.parameters * 2 * 7 / 8 / 1e11
    assert price(bare, dp=8, zero=3, micro=8).replicas[0] == pytest.approx(3 * whole)
    kept = price(bare, dp=8, zero=3, micro=8, reshard=False).replicas[0]
    assert kept == pytest.approx(2 * whole)


def test_slow_links_are_exposed_but_for_the_computation() -> None:
    """With messages longer than any unit's computation, what is hidden is that computation."""
    place = cluster(8, 1e9)
    took = price(place, dp=8, zero=3, micro=8)
    whole = SHAPE.parameters * 2 * 7 / 8 / 1e9
    hidden = 3 * whole - took.replicas[0]
    layers = took.products[0] - output_seconds()
    assert hidden == pytest.approx(layers * (1 - 1 / SHAPE.layers) + output_seconds(), rel=1e-6)


def output_seconds() -> float:
    return 6.0 * SHAPE.hidden * SHAPE.vocabulary * SHAPE.sequence * 8 / 300e12


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_more_computation_hides_more(zero: int) -> None:
    rates = [3e9, 1e10, 1e11, 1e12]
    exposed = [price(cluster(8, rate), dp=8, zero=zero, micro=8).replicas[0] for rate in rates]
    assert exposed == sorted(exposed, reverse=True)
    for rate in rates:
        shown = [
            price(cluster(8, rate, overlap), dp=8, zero=zero, micro=8).replicas[0]
            for overlap in (0.0, 0.3, 1.0)
        ]
        assert shown == sorted(shown, reverse=True)


def test_hidden_messages_slow_the_computation_down() -> None:
    place = cluster(8, 1e11)
    crowded = replace(place, reached=replace(IDEAL, contention=0.25))
    bare = price(replace(place, overlap=0.0), dp=8, zero=3, micro=8).replicas[0]
    free, slowed = (price(each, dp=8, zero=3, micro=8).replicas[0] for each in (place, crowded))
    assert slowed == pytest.approx(free + 0.25 * (bare - free))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_single_device_sends_nothing(zero: int) -> None:
    assert price(cluster(8, 1e9), pp=8, zero=zero).replicas[0] == 0
    alone = price(cluster(1, 1e9), zero=zero)
    assert alone.replicas[0] == alone.tensor[0] == alone.pipeline[0] == alone.bubble[0] == 0


def test_hybrid_sharding_gathers_inside_its_groups() -> None:
    """With links between nodes ten times as slow, a group per node gathers fast and only sums
    shards between nodes: 1/8 of the gradients, twice."""
    fast, slow = Link(0.0, 1 / 3e11), Link(0.0, 1 / 3e9)
    place = Cluster(64, 8, 80e9, 300e12, 2e12, fast, slow, IDEAL)
    flat, hybrid = (price(place, dp=64, zero=3, replicate=groups).replicas[0] for groups in (1, 8))
    psi = SHAPE.parameters * 2
    inside, between = 3 * psi * 7 / 8 / 3e11, 2 * 7 / 8 * psi / 8 / 3e9
    assert hybrid == pytest.approx(inside + between)
    assert flat == pytest.approx(3 * psi * 63 / 64 / 24e9)
    assert hybrid < flat


def test_the_last_bucket_of_gradients_is_exposed() -> None:
    place = cluster(8, 1e14)
    whole = 2 * SHAPE.parameters * 2 * 7 / 8 / 1e14
    assert price(place, dp=8, micro=8).replicas[0] == pytest.approx(whole / SHAPE.layers)


def test_pieces_of_a_unit_cost_latency() -> None:
    link = Link(1e-4, 1e-12)
    place = cluster(8, 1e12, overlap=0.0, inside=link, between=link)
    many = replace(place, software=replace(PLAIN, pieces=4))
    some, more = (price(each, dp=8, zero=3).replicas[0] for each in (place, many))
    assert more - some == pytest.approx(8 * 3 * 3 * (SHAPE.layers + 1) * 7e-4)


def test_software_without_rings_uses_the_receivers_port() -> None:
    near, far = Link(0.0, 1e-12), Link(0.0, 1 / 25e9)
    place = Cluster(64, 8, 80e9, 300e12, 2e12, near, far, IDEAL)
    alone = replace(place, software=replace(PLAIN, rings=False))
    ratio = price(alone, dp=64, zero=3).replicas[0] / price(place, dp=64, zero=3).replicas[0]
    assert ratio == pytest.approx(8)


def test_software_has_sources() -> None:
    for name, software in training_software().items():
        assert software.name == name
        assert len(software.source) > 20
        assert 0 <= software.overlap <= 1
    assert find_software("torch-fsdp2") is find_software("torch")
    with pytest.raises(Exception, match="unknown training software 'megatorn'; did you mean"):
        find_software("megatorn")


def test_zero_bubble_schedules_wait_less() -> None:
    """F = W and B = F for products alone: bubbles of 3, 1, 0 and (p/2 − 1)/(p − 1)·2 of 3 parts
    (Qi et al. 2023, table 1; DeepSeek-AI 2024, table 2)."""
    shape = replace(find_model("gpt2"), vocabulary=1, layers=16, sequence=1)
    p, m = 8, 32
    place = cluster(p, 1e15)
    shares = {}
    for name in ("1f1b", "zb-h1", "zb-h2", "dualpipe"):
        x = Layouts.from_axes(m, pp=p, schedule=name)
        took = seconds(shape, x, place, MIXED)
        shares[name] = took.bubble[0] / took.products[0] / ((p - 1) / m)
    assert shares["1f1b"] == pytest.approx(1, rel=0.01)
    assert shares["zb-h1"] == pytest.approx(1 / 3, rel=0.01)
    assert shares["zb-h2"] == pytest.approx(0, abs=0.01)
    assert shares["dualpipe"] == pytest.approx((p / 2 - 1) / (p - 1) * 2 / 3, rel=0.01)


def test_uneven_stages_set_the_pace() -> None:
    """A last stage with fewer layers makes room for the output layer."""
    shape = replace(find_model("llama-7b"), vocabulary=400_000)
    place = cluster(8, 1e15)
    even = seconds(shape, Layouts.from_axes(64, pp=8), place, MIXED, True).total[0]
    short = Layouts.from_axes(64, pp=8, last_layers=2)
    assert seconds(shape, short, place, MIXED, True).total[0] < even
    for longer in ({"first_layers": 25}, {"last_layers": 25}):
        long = Layouts.from_axes(64, pp=8, **longer)
        assert seconds(shape, long, place, MIXED, True).total[0] > even
        assert fullest_parameters(shape, long)[0] > 2 * fullest_parameters(shape, short)[0]


def test_arrays_of_layouts_are_priced_as_each_alone() -> None:
    rng = np.random.default_rng(1)
    rows = [
        {
            "dp": int(rng.choice([4, 8, 16])),
            "zero": int(rng.integers(4)),
            "micro": int(rng.choice([1, 2])),
            "reshard": bool(rng.integers(2)),
            "replicate": int(rng.choice([1, 2])),
            "schedule": str(rng.choice(["1f1b", "zb-h1", "dualpipe"])),
            "pp": int(rng.choice([1, 4])),
        }
        for _ in range(30)
    ]
    alone = [Layouts.from_axes(64, **row) for row in rows]  # type: ignore[arg-type]
    columns = {key: np.concatenate([getattr(x, key) for x in alone]) for key in vars(alone[0])}
    place = cluster(64, 1e10, 0.7)
    together = seconds(SHAPE, Layouts(**columns), place, MIXED).total
    assert together.tolist() == [float(seconds(SHAPE, x, place, MIXED).total[0]) for x in alone]
