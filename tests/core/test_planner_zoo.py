"""Layouts of dualml's own models: as shapes, as arms, and the resulting memory of each rank."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualml.algorithms.model.zoo import model
from dualml.common.errors import UserError
from dualml.experiment.arm import make_arm
from dualml.parallel.aggregation.settings import Aggregation
from dualml.parallel.memory import estimate_sharded_memory
from dualml.parallel.zero.units import units_of
from dualml.planning.planner.arm import arm_from_layout, layout_from_arm
from dualml.planning.planner.engine import DUALML
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.memory import stage_memory
from dualml.planning.planner.models import find_model
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.space import SearchSpace, enumerate_layouts
from dualml.planning.planner.zoo import shape_by_name, shape_from_spec, spec_from_shape

SIZES = [
    {},
    {"width": 48, "blocks": 3, "heads": 4, "inner": 80, "dropout": 0.1},
    {"width": 32, "blocks": 1, "heads": 8, "kv_heads": 4, "tied": False},
    {"width": 32, "blocks": 2, "heads": 4, "kv_heads": 1, "tied": True},
]
FILE = """
name = "own"
title = { en = "x", zh = "x" }
model = "lenet"
sizes = { width = 32, blocks = 5 }
[data]
name = "sentences"
words = 300
length = 8
[arms.images]
optimizer = { name = "sgd", lr = 0.1 }
[arms.text]
model = "gpt_llama"
batch_size = 24
optimizer = { name = "sgd", lr = 0.1 }
"""


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", ["gpt", "gpt_llama"])
def test_the_shape_has_the_parameters_of_the_model(name: str, sizes: dict[str, object]) -> None:
    spec = model(name, words=90, length=12, sizes=sizes)
    shape = shape_from_spec(spec)
    assert shape.parameters == sum(map(math.prod, spec.parameters().values()))
    assert spec_from_shape(shape).parameters() == spec.parameters()


def test_gpt_2_and_llama_by_their_sizes() -> None:
    """GPT-2 and Llama have the sizes that docs/gpt.md states."""
    sizes = [
        "sizes.width=4096",
        "sizes.blocks=32",
        "sizes.heads=32",
        "sizes.kv_heads=32",
        "sizes.inner=11008",
        "data.words=32000",
        "data.length=2048",
    ]
    assert find_model("gpt_llama", overrides=sizes).parameters == find_model("llama-7b").parameters
    sizes = [
        "sizes.width=768",
        "sizes.blocks=12",
        "sizes.heads=12",
        "data.words=50257",
        "data.length=1024",
    ]
    assert find_model("gpt", overrides=sizes).parameters == find_model("gpt2").parameters


def test_an_experiment_lays_out_its_decoder(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(FILE)
    shape = find_model(str(path))
    assert (shape.name, shape.layers, shape.hidden) == ("gpt_llama", 5, 32)
    assert (shape.vocabulary, shape.sequence, shape.batch) == (300, 8, 24)
    assert find_model(str(path), overrides=["sizes.blocks=7"]).layers == 7


@pytest.mark.parametrize(
    ("text", "overrides", "reason"),
    [
        ("lab1", (), "no arm trains gpt or gpt_llama"),
        ("gpt", ("sizes.widht=3",), "did you mean 'width'"),
        ("gpt", ("sizes.width=30",), "sizes.width = 30 is no multiple of sizes.heads = 4"),
        ("gpt", ("arms.x=3",), "unknown key arms"),
        ("gpt2", ("sizes.width=32",), "gpt2 has its own sizes"),
        ("gptt", (), "did you mean 'gpt'"),
    ],
)
def test_what_is_none(text: str, overrides: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        find_model(text, overrides=overrides)


def test_dualml_trains_its_own_models_alone() -> None:
    assert shape_by_name("gpt_llama").gated
    with pytest.raises(UserError, match="dualml cannot train it"):
        spec_from_shape(Shape("other", 2, 64, 4, 4, 256, 100, 16, gated=True))


def layouts(shape: Shape) -> Iterator[Layouts]:
    for devices in (1, 2, 4, 8):
        every = enumerate_layouts(shape, devices, 16, SearchSpace(sequence=(0,)))
        every = every.select_rows(DUALML.can_train(every, shape))
        yield from (every.select_rows([row]) for row in range(len(every)))


@pytest.mark.parametrize("name", ["gpt", "gpt_llama"])
def test_every_rank_of_every_layout_has_the_states_that_are_predicted(name: str) -> None:
    """Every rank of every layout of 1 to 8 ranks has the predicted states, computed from split and
    units without a run."""
    sizes = {"width": 32, "blocks": 4, "heads": 4, "kv_heads": 4}
    spec = model(name, words=64, length=8, sizes=sizes)
    shape, count = shape_from_spec(spec, 16), 0
    for x in layouts(shape):
        keys = arm_from_layout(shape, x.describe(0))
        arm = make_arm({"optimizer": {"name": "adam", "lr": 0.1}, **keys})
        assert layout_from_arm(shape, arm).describe(0) == x.describe(0)
        plan = None if arm.split is None else arm.split.plan(spec, arm.world_size)
        for rank in range(arm.world_size):
            stage = 0
            if plan is not None:
                stage = plan.mesh.coordinates(rank)[1]
                pieces = plan.rank_stages(rank)[1].values()
                n = sum(math.prod(piece.local_shape) for piece in pieces)
                own = (n, n, 2 * -(-n // arm.split.data) if arm.zero and arm.split else 2 * n)
            elif arm.zero:
                units = units_of(spec, Aggregation().bucket_bytes, arm.world_size)
                some = estimate_sharded_memory(units, arm.world_size, arm.zero, 2)
                own = (some.weights, some.gradients, some.state)
            else:
                own = (shape.parameters, shape.parameters, 2 * shape.parameters)
            m = stage_memory(shape, x, DUALML.precisions["fp32"], np.array([stage]), engine=DUALML)
            of = m.describe(0)
            told = of["weights"], of["gradients"], of["optimizer"]
            assert [4 * elements for elements in own] == list(told), (x.describe(0), rank)
            count += 1
    assert count > 300


@pytest.mark.parametrize(
    "keys",
    [
        {"pp": 2, "zero": 2},
        {"tp": 2, "sp": True},
        {"cp": 2},
        {"pp": 2, "schedule": "zb-h1"},
        {"dp": 4, "zero": 3, "replicate": 2},
        {"dp": 4, "zero": 3, "reshard": False},
    ],
)
def test_layouts_that_dualml_does_not_train(keys: dict[str, Any]) -> None:
    x = Layouts.from_axes(16, **keys)  # type: ignore[arg-type]
    assert not DUALML.can_train(x)[0]
    with pytest.raises(UserError, match="dualml trains no layout"):
        arm_from_layout(shape_by_name("gpt"), x.describe(0))


@pytest.mark.parametrize(
    "change",
    [
        {"split": {"cut": ["mlp_branch1"]}, "world_size": 2},
        {
            "split": {"cut": ["attention_branch2"], "schedule": "gpipe", "micro_batches": 2},
            "world_size": 2,
        },
        {"split": {"tensor": 2, "sequence": True}, "world_size": 2},
        {"split": {"context": 2}, "world_size": 2},
        {"zero": 3, "zero_lower": True, "precision": "bf16", "world_size": 2},
        {"offload": {"state": "disk"}},
        {"method": "recompute"},
        {"recompute": ["up1"]},
        {"batch_size": 10, "world_size": 4},
    ],
)
def test_arms_that_are_no_layout(change: dict[str, object]) -> None:
    table = {"optimizer": {"name": "adam", "lr": 0.1}, "batch_size": 16, **change}
    with pytest.raises(UserError, match=r"no layout|no multiple"):
        layout_from_arm(shape_by_name("gpt"), make_arm(table))
