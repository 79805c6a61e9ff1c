"""Update times against closed forms, a pipeline simulation and published equations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.parallel.split.schedules import build
from dualml.planning.cost import Link, cost
from dualml.planning.cost.pipeline import simulate_pipeline
from dualml.planning.planner.cluster import Cluster, Efficiency
from dualml.planning.planner.collectives import ring_seconds
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.memory import PRECISIONS
from dualml.planning.planner.models import find_model, known_models
from dualml.planning.planner.seconds import UpdateSeconds, seconds
from dualml.planning.planner.shape import Shape

MIXED = PRECISIONS["mixed"]
LINK, FAST = Link(2e-5, 1 / 25e9), Link(5e-6, 1 / 300e9)
IDEAL = Efficiency(products=1.0, traffic=0.0, links=1.0)
TINY = Shape("tiny", 12, 256, 8, 8, 1024, 1, 128)


def cluster(devices: int, reached: Efficiency = IDEAL, **changes: object) -> Cluster:
    made = Cluster(devices, 8, 80e9, 312e12, 2e12, FAST, LINK, reached)
    return replace(made, **changes)  # type: ignore[arg-type]


def step_seconds(
    shape: Shape, batch: int, reached: Efficiency = IDEAL, **layout: object
) -> UpdateSeconds:
    x = Layouts.from_axes(batch, **layout)  # type: ignore[arg-type]
    return seconds(shape, x, cluster(int(x.devices[0]), reached), MIXED)


@pytest.mark.parametrize("name", [n for n in known_models() if n.startswith("megatron")])
def test_operations_of_the_published_equations(name: str) -> None:
    """96·B·s·l·h²(1 + s/(6h) + V/(16lh)) with full recomputation (Narayanan et al. 2021,
    arXiv:2104.04473v5, equation 3); 72·B·L·s·h²(1 + s/(6h) + v/(12hL)) without (Korthikanti
    et al. 2022, arXiv:2205.05198, equation 7). Scores done again are one more pass forwards, 4/3 of
    s/(6h); their equation 8 has s/(3h), as if they went backwards once more, too."""
    m = find_model(name)
    s, h, layers, v, batch = m.sequence, m.hidden, m.layers, m.vocabulary, 24
    base = float(batch) * s * layers * h * h
    assert m.flops(batch, "full") == pytest.approx(
        96 * base * (1 + s / (6 * h) + v / (16 * layers * h)), rel=1e-12
    )
    for again, share in (("none", 6), ("selective", 6 * 3 / 4)):
        assert m.flops(batch, again) == pytest.approx(
            72 * base * (1 + s / (share * h) + v / (12 * layers * h)), rel=1e-12
        )
    assert m.flops(batch, fused=True) < m.flops(batch)


def test_utilisation_of_korthikantis_table_5() -> None:
    """Model FLOPs utilisation from their iteration times: 41.5, 51.4, 56.0, 56.3 % (table 5)."""
    published = {
        ("megatron-22b", 8, 4, 1.10): 0.415,
        ("megatron-174.6b", 64, 64, 13.75): 0.514,
        ("megatron-529.6b", 280, 280, 37.83): 0.560,
        ("megatron-1008b", 512, 512, 71.49): 0.563,
    }
    for (name, n, batch, took), share in published.items():
        assert find_model(name).flops(batch) / (n * took * 312e12) == pytest.approx(
            share, abs=0.002
        )


@pytest.mark.parametrize("again", ["none", "selective", "full"])
def test_arithmetic_alone_is_the_operations_over_the_peak(again: str) -> None:
    shape = find_model("gpt2-xl")
    took = step_seconds(shape, 8, recompute=again)
    assert took.total[0] - took.update[0] == pytest.approx(
        shape.flops(8, again) / 312e12, rel=1e-12
    )
    split = step_seconds(shape, 8, recompute=again, tp=5, dp=2)
    assert split.products[0] * 10 == pytest.approx(took.products[0], rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 8, 1024])
def test_a_ring_costs_what_the_closed_form_says(n: int) -> None:
    """Twice a gather is an all-reduce: 2(n−1) messages and 2(n−1)/n·S (`dualml.planning.cost`)."""
    nbytes = 12 * 1024 * n
    closed = cost("ring", n, nbytes)
    assert 2 * ring_seconds(n, nbytes, 1.0, 0.0) == closed.steps
    assert 2 * ring_seconds(n, nbytes, 0.0, 1.0) == pytest.approx(closed.bytes, rel=1e-12)


def test_messages_between_replicas() -> None:
    """2Ψ(N−1)/N without ZeRO, with ZeRO-1 and, for one micro-batch, ZeRO-2; 3Ψ(N−1)/N with ZeRO-3
    (Rajbhandari et al. 2020, section 7); gradients and weights have two bytes each."""
    n, flat = 4, Efficiency(1.0, 0.0, 1.0)
    nothing = replace(cluster(n, flat), inside=Link(0.0, 1 / 300e9))
    for zero, times in enumerate((2, 2, 2, 3)):
        x = Layouts.from_axes(n, dp=n, zero=zero)
        took = seconds(TINY, x, nothing, MIXED).replicas[0]
        moved = times * TINY.parameters * 2 * (n - 1) / n
        assert took == pytest.approx(moved / 300e9, rel=1e-12)
    two, three = (
        seconds(TINY, Layouts.from_axes(8 * n, dp=n, zero=z), nothing, MIXED).replicas[0]
        for z in (2, 3)
    )
    psi = TINY.parameters * 2 * (n - 1) / n / 300e9
    assert (two, three) == pytest.approx((9 * psi, 24 * psi), rel=1e-12)


def test_messages_inside_a_layer() -> None:
    """8bsh(t−1)/t elements for each layer and micro-batch (Narayanan et al. 2021, section 3.2),
    half as much again where the layer is computed again; sequence parallelism moves the same."""
    bare = replace(cluster(4), inside=Link(0.0, 1 / 300e9))
    for again, times in (("none", 8), ("full", 12)):
        for sp in (False, True):
            x = Layouts.from_axes(2, tp=4, sp=sp, recompute=again)
            took = seconds(TINY, x, bare, MIXED).tensor[0]
            elements = 2 * 12 * times * 128 * 256 * 3 / 4
            assert took == pytest.approx(elements * 2 / 300e9, rel=1e-12)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 4), (4, 16), (3, 9), (6, 12)])
def test_a_pipeline_takes_what_its_simulation_says(p: int, m: int) -> None:
    """m·t + (p − 1)·t for equal stages (Narayanan et al. 2021, section 2.2.1), also where the
    layers do not divide and the output layer is long: the events of
        `dualml.planning.cost.pipeline`."""
    for vocabulary in (1, 40_000):
        for layers in (12, 13):
            shape = replace(TINY, layers=layers, vocabulary=vocabulary, tied=True)
            bare = replace(cluster(p), inside=Link(0.0, 0.0), between=Link(0.0, 0.0))
            took = seconds(shape, Layouts.from_axes(m, pp=p, dp=1), bare, MIXED)
            layer, output = work(shape)
            counts = stages(layers, p)
            forward = [
                k * layer / 3 + (output / 3 if i == p - 1 else 0) for i, k in enumerate(counts)
            ]
            told = simulate_pipeline(build("1f1b", range(p), m), forward, [2 * f for f in forward])
            found = float(took.total[0] - took.update[0])
            assert found == pytest.approx(
                told.seconds, rel=1e-9 if len(set(forward)) == 1 else 0.12
            )
            assert found >= told.seconds * (1 - 1e-9)


def work(shape: Shape) -> tuple[float, float]:
    """Return the seconds of a layer and of the output for one sequence, forward and backward."""
    products, scores = shape.layer_flops()
    tokens = shape.sequence / 312e12
    return 3 * tokens * (products + scores), 6 * tokens * shape.hidden * shape.vocabulary


def stages(layers: int, p: int) -> list[int]:
    """Return the layers per stage: the last stages have one less; with several, one is moved to the
    front."""
    most, short = -(-layers // p), -layers % p
    counts = [most] * (p - short) + [most - 1] * short
    if short >= 2:
        counts[0], counts[-short] = counts[-short], counts[0]
    return counts


def test_interleaving_divides_the_bubble() -> None:
    """(p − 1)/(vm) of the computing time (Narayanan et al. 2021, section 2.2.2)."""
    shape = replace(TINY, vocabulary=1, tied=True, hidden=256)
    free = replace(cluster(4), inside=Link(0.0, 0.0), between=Link(0.0, 0.0))
    for v in (1, 3):
        took = seconds(shape, Layouts.from_axes(16, pp=4, chunks=v), free, MIXED)
        share = took.bubble[0] / took.products[0]
        assert share == pytest.approx(3 / (v * 16), rel=0.01)  # the output is a layer's thousandth


def test_links_by_where_devices_stand() -> None:
    """Inside a node the fast link; beyond it a port for each member that a node has."""
    shape = cluster(64)
    for members, stride, beta in (
        (8, 1, 1 / 300e9),
        (2, 4, 1 / 300e9),
        (16, 1, 1 / 200e9),
        (8, 8, 1 / 25e9),
        (16, 2, 1 / 100e9),
        (6, 1, 1 / 150e9),
        (3, 2, 1 / 75e9),
        (1, 64, 1 / 300e9),
    ):
        assert float(shape.link(members, stride)[1]) == pytest.approx(beta)
    assert float(cluster(6).link(6, 1)[1]) == pytest.approx(1 / 300e9)
    assert float(shape.link(4, 4, ring=False)[1]) == pytest.approx(1 / 25e9)
    assert float(cluster(64, Efficiency(1, 0, 0.5, 1)).link(2, 1)[1]) == pytest.approx(2 / 300e9)


def test_everything_costs_time_and_nothing_less_than_nothing() -> None:
    slow = Efficiency(0.5, 3.0, 0.5, 0.5)
    shape = find_model("gpt3-13b")
    layout = {"dp": 8, "pp": 4, "tp": 2, "cp": 2, "zero": 1, "recompute": "full"}
    base = step_seconds(shape, 64, slow, **layout)
    for name, part in vars(base).items():
        assert part[0] > 0 or name == "launches"  # this software launches nothing
    for better in (
        replace(slow, products=1.0),
        replace(slow, traffic=1.0),
        replace(slow, links=1.0),
    ):
        assert step_seconds(shape, 64, better, **layout).total[0] < base.total[0]


def test_overlap_hides_messages_of_replicas_and_no_more() -> None:
    shape, x = find_model("gpt2-xl"), Layouts.from_axes(64, dp=64)
    for overlap in (0.0, 0.3, 1.0):
        there = seconds(shape, x, cluster(64, overlap=overlap), MIXED)
        if overlap == 0.0:
            plain = there
        hidden = plain.replicas[0] - there.replicas[0]
        assert 0 <= hidden <= overlap * 2 / 3 * there.products[0] + 1e-12
        assert (hidden > 0) == (overlap > 0)


def test_many_layouts_are_priced_as_each_alone() -> None:
    shape, rng = find_model("llama3-8b"), np.random.default_rng(0)
    rows = [
        {
            "dp": int(rng.choice([1, 2, 4])),
            "pp": int(rng.choice([1, 2, 3, 8])),
            "tp": int(rng.choice([1, 2, 8])),
            "zero": int(rng.integers(4)),
            "micro": int(rng.choice([1, 2])),
            "sp": bool(rng.integers(2)),
            "recompute": str(rng.choice(["none", "selective", "full"])),
        }
        for _ in range(50)
    ]
    alone = [Layouts.from_axes(48, **row) for row in rows]  # type: ignore[arg-type]
    columns = {key: np.concatenate([getattr(x, key) for x in alone]) for key in vars(alone[0])}
    together = seconds(shape, Layouts(**columns), cluster(64), MIXED).total
    each = [float(seconds(shape, x, cluster(64), MIXED).total[0]) for x in alone]
    assert together.tolist() == each


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"devices": 0}, "--devices"),
        ({"node": 0}, "--node"),
        ({"memory": 0.0}, "--memory"),
        ({"peak": float("inf")}, "--peak"),
        ({"overlap": 2.0}, "--overlap"),
        ({"reached": replace(IDEAL, products=1.5)}, "--efficiency"),
        ({"reached": replace(IDEAL, links=0.0)}, "cannot be"),
    ],
)
def test_clusters_that_cannot_be(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        replace(cluster(8), **changes)  # type: ignore[arg-type]
