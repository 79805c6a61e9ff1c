"""The layout search: its candidates, its results, and the constraint it reports as binding."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest

from dualml.common.errors import UserError
from dualml.planning.planner.layouts import RECOMPUTED, Layouts
from dualml.planning.planner.memory import estimate_memory
from dualml.planning.planner.models import find_model
from dualml.planning.planner.request import default_batch, request_from_options
from dualml.planning.planner.search import search_layouts
from dualml.planning.planner.seconds import seconds
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.space import SearchSpace, divisors, enumerate_layouts

OPTIONS: dict[str, Any] = {
    "devices": 64,
    "device": "a100",
    "memory": None,
    "link": None,
    "batch": None,
    "sequence": None,
    "precision": "mixed",
    "attention": "stored",
    "node": None,
    "inside": None,
    "alpha": None,
    "peak": None,
    "hbm": None,
    "efficiency": None,
    "overlap": 0.0,
    "reserve": None,
    "tensor": None,
    "context": 1,
    "interleave": 1,
    "zero": None,
    "recompute": None,
    "overrides": None,
    "engine": None,
}


#: Columns that the search varies.
COLUMNS = ("dp", "pp", "tp", "cp", "sp", "zero", "micro", "batch", "recompute", "chunks")


def make_request(model: str, **options: Any) -> Any:
    return request_from_options(model, {**OPTIONS, **options})


def test_the_layouts_are_those_of_plain_loops() -> None:
    """The search considers every layout that divides evenly, exactly once, and no other."""
    shape = Shape("x", 32, 3072, 48, 6, 12288, 1000, 8192)
    devices, batch, choices = 48, 96, SearchSpace(tensor=16, context=3, chunks=2)
    found = enumerate_layouts(shape, devices, batch, choices)
    rows = set(zip(*(getattr(found, key).tolist() for key in COLUMNS), strict=True))
    assert len(rows) == len(found)
    expected = set()
    for dp, pp, tp, cp in itertools.product(range(1, devices + 1), repeat=4):
        if dp * pp * tp * cp != devices or tp > 16 or cp > 3:
            continue
        if 48 % tp or (6 % tp and tp % 6) or 12288 % tp or pp > 32 or batch % dp:
            continue
        if cp > 1 and 8192 % (2 * cp):
            continue
        for micro, v, sp, zero, again in itertools.product(
            range(1, batch + 1), (1, 2), (0, 1), range(4), range(3)
        ):
            m, rest = divmod(batch, dp * micro)
            if rest or (sp and tp == 1) or (zero and dp * cp == 1):
                continue
            if v > 1 and (pp == 1 or m % pp or (-32) % (pp * v) > 2):
                continue
            expected.add((dp, pp, tp, cp, sp, zero, micro, batch, again, v))
    assert rows == expected


def test_nothing_is_cut_unevenly_but_the_layers() -> None:
    shape = find_model("llama3-405b")
    x = enumerate_layouts(shape, 16384, 2048, SearchSpace(tensor=64, context=16, chunks=4))
    assert (x.devices == 16384).all()
    for size in (shape.heads, shape.ffn):
        assert not (size % x.tp).any()
    assert not np.where(x.tp <= 8, 8 % x.tp, x.tp % 8).any()  # 8 heads of keys, or copies of them
    assert not (2048 % (x.dp * x.micro)).any()
    interleaved = x.select_rows(x.chunks > 1)
    assert set(interleaved.pp * interleaved.chunks) <= {k for k in range(4, 129) if -126 % k <= 2}
    assert (shape.layers % x.pp != 0).any()
    assert x.tp.max() == 64


def test_the_winner_is_the_fastest_that_fits() -> None:
    found = search_layouts(make_request("gpt3-13b", devices=32, memory="40GB"))
    fits = found.peak_memory <= 40e9
    assert 0 < fits.sum() < len(fits)
    assert found.update_seconds[found.best_row] == found.update_seconds[fits].min()
    assert (np.diff(found.update_seconds[found.ranked_rows]) >= 0).all()
    x = found.layouts.select_rows([found.best_row])
    precision = found.request.engine.precisions["mixed"]
    again = seconds(found.request.shape, x, found.request.cluster, precision).total[0]
    assert again == found.update_seconds[found.best_row]
    assert (
        estimate_memory(found.request.shape, x, precision).total[0]
        == found.peak_memory[found.best_row]
    )


def test_the_front_is_what_nothing_beats() -> None:
    found = search_layouts(make_request("gpt3-6.7b", devices=16))
    rows = found.front_rows
    assert (np.diff(found.peak_memory[rows]) > 0).all()
    assert (np.diff(found.update_seconds[rows]) < 0).all()
    for row in range(len(found.layouts)):
        better = (found.peak_memory[rows] <= found.peak_memory[row]) & (
            found.update_seconds[rows] <= found.update_seconds[row]
        )
        assert better.any()
    assert found.front_rows[-1] == int(np.lexsort((found.peak_memory, found.update_seconds))[0])


@pytest.mark.parametrize(
    ("options", "binding"),
    [
        (
            {"model": "gpt3-13b", "devices": 8, "memory": "36GB", "batch": 64, "inside": "10TB/s"},
            "memory",
        ),
        ({"model": "gpt3-175b", "devices": 1024, "batch": 32, "link": "100GB/s"}, "bubble"),
        (
            {
                "model": "gpt3-13b",
                "devices": 64,
                "link": "1Gbit",
                "node": 1,
                "tensor": 1,
                "batch": 64,
            },
            "links",
        ),
        ({"model": "gpt2", "devices": 1, "batch": 64, "peak": "10PFLOP/s"}, "traffic"),
        ({"model": "gpt2", "devices": 1, "batch": 64, "peak": "1GFLOP/s"}, "products"),
    ],
)
def test_what_binds(options: dict[str, Any], binding: str) -> None:
    model = options.pop("model")
    found = search_layouts(make_request(model, **options))
    assert found.binding == binding, found.bounds
    assert all(0 <= share < 1 for share in found.bounds.values())


def test_more_memory_never_makes_it_slower_and_binds_until_it_does_not() -> None:
    times = [
        float(found.update_seconds[found.best_row])
        for found in (
            search_layouts(make_request("gpt3-13b", devices=16, memory=size))
            for size in ("20GB", "40GB", "80GB", "1TB")
        )
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]
    assert (
        search_layouts(make_request("gpt3-13b", devices=16, memory="100TB")).bounds["memory"] == 0
    )


def test_nothing_fits() -> None:
    """If nothing fits, the nearest layout and its excess are reported."""
    found = search_layouts(make_request("gpt3-175b", devices=8, memory="80GB"))
    with pytest.raises(UserError) as error:
        _ = found.best_row
    text = str(error.value)
    row = int(found.peak_memory.argmin())
    assert "no layout of 8 devices holds gpt3-175b in 80 GB" in text
    assert f"needs {found.peak_memory[row] / 1e9:.4g} GB" in text
    assert f"{(found.peak_memory[row] - 80e9) / 1e9:.4g} GB too much" in text
    assert "more devices" in text


def test_a_limit_at_the_nearest_is_met() -> None:
    found = search_layouts(make_request("gpt3-175b", devices=8, memory="80GB"))
    needed = float(found.peak_memory.min())
    assert len(
        search_layouts(make_request("gpt3-175b", devices=8, memory=f"{needed + 1:.0f}")).ranked_rows
    )
    assert not len(
        search_layouts(make_request("gpt3-175b", devices=8, memory=f"{needed - 2:.0f}")).ranked_rows
    )


@pytest.mark.parametrize(
    ("devices", "limit_s", "options"),
    [
        (1024, 2.0, {}),
        (1024, 2.0, {"context": 8, "interleave": 8}),
        (100_000, 10.0, {}),
        (100_000, 10.0, {"context": 16, "interleave": 4, "batch": 100_000}),
    ],
)
def test_seconds_of_a_search(devices: int, limit_s: float, options: dict[str, Any]) -> None:
    for model in ("gpt3-175b", "llama3-405b"):
        start = time.perf_counter()
        found = search_layouts(make_request(model, devices=devices, **options))
        _ = found.best_row, found.front_rows, found.bounds, found.describe(10)
        assert time.perf_counter() - start < limit_s


def test_choices_are_kept() -> None:
    found = search_layouts(
        make_request("gpt3-13b", zero="1", recompute="full,none", tensor=2, interleave=2)
    )
    x = found.layouts
    assert set(x.zero.tolist()) == {1}
    assert {RECOMPUTED[k] for k in x.recompute} == {"none", "full"}
    assert x.tp.max() == 2
    assert x.chunks.max() == 2
    fused = search_layouts(make_request("gpt3-13b", attention="fused")).layouts
    assert {RECOMPUTED[k] for k in fused.recompute} == {"none", "full"}


def test_usual_batches() -> None:
    """The chosen batch is near the published one and divisible by the devices, or divides them."""
    gpt3 = find_model("gpt3-175b")
    assert default_batch(gpt3, 512) == 1536
    for devices in (1, 7, 1000, 1536, 98_304, 100_000):
        batch = default_batch(gpt3, devices)
        assert batch % devices == 0 or devices % batch == 0
        assert len(
            search_layouts(make_request("gpt3-175b", devices=devices, memory="100TB")).ranked_rows
        )
    assert default_batch(find_model("megatron-22b"), 8) == 2048


def test_layouts_that_do_not_divide() -> None:
    with pytest.raises(UserError, match="is no multiple of dp 2 · micro-batch 3"):
        Layouts.from_axes(8, dp=2, micro=3)
    with pytest.raises(UserError, match="no mesh of 1,021 devices"):
        search_layouts(make_request("gpt3-175b", devices=1021, batch=1536))
    with pytest.raises(UserError, match="more than 1,000,000 layouts"):
        search_layouts(
            make_request(
                "megatron-1008b",
                devices=720_720,
                batch=720_720 * 64,
                context=1000,
                tensor=1000,
                interleave=8,
                sequence=2**20,
            )
        )


def test_divisors() -> None:
    for n in (1, 2, 12, 36, 97, 1024, 720_720):
        assert divisors(n) == [k for k in range(1, n + 1) if n % k == 0]
