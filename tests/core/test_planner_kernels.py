"""Seconds of products and attention by shape: limiting cases, measured speeds, launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dualml.planning.planner.cluster import Cluster, Efficiency
from dualml.planning.planner.devices import find_device
from dualml.planning.planner.engine import PRECISIONS
from dualml.planning.planner.kernels import AttentionKernel, Chip, ProductSpeed
from dualml.planning.planner.layer_products import layer_products
from dualml.planning.planner.layer_seconds import distinct_rows
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.models import find_model
from dualml.planning.planner.request import make_cluster
from dualml.planning.planner.seconds import seconds
from dualml.planning.planner.shape import Shape

MIXED = PRECISIONS["mixed"]
CHIP = Chip(processors=100, product_share=0.8)
SPEED = ProductSpeed(CHIP, 250e12, 2e12, stores=0.5)
TYPICAL = Efficiency(0.9, 1.3, 0.95, 0.9, 0.5, 0.5, 0.1, launch=5e-6)


def device_cluster(name: str, devices: int = 8, software: str = "megatron") -> Cluster:
    return make_cluster(find_device(name), devices, "mixed", TYPICAL, software)


def test_huge_products_reach_the_speed_of_the_best() -> None:
    for n in (2**14, 2**17, 2**20):
        took = SPEED.seconds(n, n, n, 2)
        assert took > 2 * n**3 / 250e12
    assert took == pytest.approx(2 * n**3 / 250e12, rel=2e-3)


def test_a_product_takes_the_longer_of_operations_and_bytes() -> None:
    """One row times a matrix reads the matrix; without ``stores`` nothing is added."""
    bare = replace(SPEED, stores=0.0)
    n = 2**14
    nbytes = 2 * (n * n + 2 * n)
    assert bare.seconds(1, n, n, 2) == pytest.approx(nbytes / 2e12)
    assert SPEED.seconds(1, n, n, 2) == pytest.approx((nbytes + 0.5 * 2 * n) / 2e12)
    # Gradients that are added to others are read and written.
    wide = SPEED.seconds(n, n, 256, 2, result=8)
    assert wide > SPEED.seconds(n, n, 256, 2)


def test_tiles_and_waves_are_computed_whole() -> None:
    """100 multiprocessors and tiles of 256 × 128: 10 × 10 tiles are one wave, 10 × 11 two."""
    assert CHIP.filled_share(2560, 1280) == pytest.approx(1.0)
    assert 1281 / 2560 < CHIP.filled_share(2560, 1281) < 0.65
    for m, n in ((1, 1), (100, 300), (5000, 7000), (10**6, 10**6)):
        assert 0 < CHIP.filled_share(m, n) <= 1
    assert CHIP.filled_share(10**6, 10**6) > 0.99
    # Many small products fill the device together.
    assert CHIP.filled_share(128, 128, 1000) == pytest.approx(0.9)
    assert Chip().filled_share(1, 1) == 1


def test_attention_reaches_what_was_measured() -> None:
    """TFLOP/s of causal attention on an H100, head width 128, sequences of 512 to 16k, forward
    (Shah et al. 2024, arXiv:2407.08608, figure 5); the backward pass was measured without mask."""
    kernels = find_device("h100").attention
    measured = {
        "flash2": (191, 260, 298, 319, 333, 335),
        "flash3": (292, 423, 521, 579, 602, 616),
    }
    lengths = np.array([512, 1024, 2048, 4096, 8192, 16384])
    for name, rates in measured.items():
        ahead, back = kernels[name].shares(lengths, 128)
        assert ahead * 989 == pytest.approx(rates, rel=0.06)
        assert (back < ahead).all()
    narrow, _ = kernels["flash2"].shares(lengths, 64)
    assert narrow * 989 == pytest.approx((180, 229, 262, 284, 295, 299), rel=0.14)
    assert AttentionKernel(0.5, 0.4, 0, 0).shares(1.0, 256) == (0.5, 0.4)


def test_two_micro_batches_cost_more_than_one_of_twice_the_size() -> None:
    """A small model waits for its host and does not fill the device; a large one gains little."""
    gains = {}
    for name in ("gpt2", "gpt3-1.3b", "gpt3-13b"):
        shape = find_model(name)
        x = [Layouts.from_axes(64, dp=8, micro=b) for b in (1, 2, 4, 8)]
        took = [
            float(seconds(shape, each, device_cluster("h100", 8, "torch"), MIXED, True).total[0])
            for each in x
        ]
        assert took == sorted(took, reverse=True)
        gains[name] = took[0] / took[-1]
    assert gains["gpt2"] > 2
    assert 1.01 < gains["gpt3-1.3b"] < 1.1
    assert 1.01 < gains["gpt3-13b"] < 1.1


def test_the_host_waits_for_nobody_where_layers_are_long() -> None:
    small, large = find_model("gpt2"), find_model("gpt3-13b")
    cluster = device_cluster("h100", 8, "torch")
    waits = [
        seconds(shape, Layouts.from_axes(8, dp=8), cluster, MIXED, True).launches[0]
        for shape in (small, large)
    ]
    assert waits[0] > 0
    assert waits[1] == 0
    # Layers of the small model take exactly what their launches take.
    kernels = cluster.software.kernels * 3
    fast = replace(cluster, peak=1e18, bandwidth=1e18)
    took = seconds(small, Layouts.from_axes(8, dp=8), fast, MIXED, True)
    layers = took.products + took.traffic + took.launches
    assert layers[0] == pytest.approx(small.layers * kernels * TYPICAL.launch, rel=0.02)


def test_smaller_types_speed_products_up_and_not_attention() -> None:
    shape = find_model("llama3-8b")
    x = Layouts.from_axes(8, dp=8)
    wide, narrow = (
        make_cluster(find_device("h100"), 8, name, TYPICAL) for name in ("mixed", "fp8")
    )
    took = [seconds(shape, x, each, MIXED, True) for each in (wide, narrow)]
    assert 1.3 < took[0].products[0] / took[1].products[0] < 1402.6 / 794.5
    assert took[1].traffic[0] > took[0].traffic[0]  # casts
    assert narrow.wide_peak == pytest.approx(wide.peak)
    assert narrow.wide_products.flops == pytest.approx(wide.products.flops)


@pytest.mark.parametrize("name", ["gpt3-13b", "llama3-8b", "gpt2"])
def test_products_are_all_operations_of_a_layer(name: str) -> None:
    shape = find_model(name)
    for tp in (1, 2, 4):
        x = Layouts.from_axes(1, tp=tp)
        flops = sum(
            2 * each.share * each.count * each.m * each.n * each.k
            for each in layer_products(shape, x, 1000)
        )
        assert float(np.asarray(flops).item()) * tp == pytest.approx(
            1000 * shape.layer_flops()[0], rel=1e-12
        )


MOE = Shape(
    "moe", 8, 512, 8, 8, 2048, 1000, 512, gated=True, experts=16, experts_per_token=2,
    expert_ffn=256, shared_experts=1, dense_layers=2,
)  # fmt: skip
LATENT = Shape(
    "latent", 8, 512, 8, 8, 2048, 1000, 512, head_width=96, q_lora_rank=128, kv_lora_rank=64,
    rope_width=32, value_width=64,
)  # fmt: skip


@pytest.mark.parametrize("shape", [MOE, LATENT])
@pytest.mark.parametrize("axes", [{}, {"dp": 8, "ep": 8}, {"dp": 4, "ep": 4}])
def test_experts_and_latent_attention_compute_all_of_their_operations(
    shape: Shape, axes: dict[str, int]
) -> None:
    x = Layouts.from_axes(8, **axes)  # type: ignore[arg-type]
    flops = sum(
        2 * each.share * each.count * each.m * each.n * each.k
        for each in layer_products(shape, x, 1000)
    )
    assert float(np.asarray(flops).item()) == pytest.approx(
        1000 * shape.layer_flops()[0], rel=1e-12
    )


def test_experts_exchange_tokens() -> None:
    cluster = device_cluster("h100", 64)
    took = [
        seconds(MOE, Layouts.from_axes(64, dp=64, ep=ep), cluster, MIXED, True).tensor[0]
        for ep in (1, 2, 8, 16)
    ]
    assert took[0] == 0
    assert took[0] < took[1] < took[2] < took[3]  # 16 leave the node
    x = Layouts.from_axes(64, dp=16, pp=4, ep=16, schedule="dualpipe")
    plain = Layouts.from_axes(64, dp=16, pp=4, ep=16)
    hidden, shown = (seconds(MOE, each, cluster, MIXED, True).tensor[0] for each in (x, plain))
    assert hidden < shown


def test_equal_rows_are_computed_once() -> None:
    x = Layouts.from_axes(8, micro=2)
    rows = np.zeros(50, np.int64)
    first, index = distinct_rows(x.select_rows(rows), ("micro", "tp"))
    assert first.tolist() == [0]
    assert index.tolist() == [0] * 50
    both = {k: np.concatenate([v, v, v]) for k, v in vars(x).items()}
    both["tp"] = np.array([1, 2, 1])
    first, index = distinct_rows(Layouts(**both), ("micro", "tp"))
    assert first.tolist() == [0, 1]
    assert index.tolist() == [0, 1, 0]


def test_the_busiest_device_has_more_than_its_share_of_tokens() -> None:
    """With experts on one device nothing is uneven; on many the excess approaches the imbalance."""
    place = device_cluster("h100", 16)
    uneven = replace(place, reached=replace(TYPICAL, imbalance=0.5))
    longer = []
    for ep in (1, 2, 16):
        x = Layouts.from_axes(16, dp=16, ep=ep)
        even, more = (seconds(MOE, x, each, MIXED, True).products[0] for each in (place, uneven))
        longer.append(more / even - 1)
    assert longer[0] == 0
    assert 0 < longer[1] < longer[2] < 0.5
