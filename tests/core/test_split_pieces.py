"""The parts of a model that each rank of a mesh holds, and the samples it works on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualml.algorithms.model import model
from dualml.parallel.split import traffic
from dualml.parallel.split.mesh import Mesh
from dualml.parallel.split.plan import split_plan
from dualml.parallel.split.shards import TensorShard


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_ranks_of_a_mesh(data: int, pipeline: int, tensor: int) -> None:
    mesh = Mesh(data, pipeline, tensor)
    ranks = list(range(mesh.size))
    assert [mesh.rank(*mesh.coordinates(rank)) for rank in ranks] == ranks
    assert len({mesh.coordinates(rank) for rank in ranks}) == mesh.size
    for groups, size in ((mesh.tensor_groups(), tensor), (mesh.data_groups(), data)):
        assert sorted(rank for group in groups for rank in group) == ranks
        assert {len(group) for group in groups} == {size}
    for group in mesh.data_groups():
        assert len({mesh.coordinates(rank)[1:] for rank in group}) == 1


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(0, 1))
def test_pieces_go_out_and_come_back(each: int, parts: int, blocks: int, axis: int) -> None:
    length = each * parts * blocks
    shape = (length, 5) if axis == 0 else (5, length)
    whole = np.arange(math.prod(shape)).reshape(shape)
    again = np.full(shape, -1)
    for part in range(parts):
        piece = TensorShard(shape, axis, part, parts, blocks)
        taken = piece.extract(whole)
        assert taken.shape == piece.local_shape
        assert taken.flags.c_contiguous
        assert not np.shares_memory(taken, whole)
        piece.insert(again, taken)
    np.testing.assert_array_equal(again, whole)


def test_a_rank_has_queries_keys_and_values_of_its_heads() -> None:
    """Rank 1 of 2 has heads 2 and 3 of 4: rows 32 to 63 of each of q, k, v."""
    plan = split_plan(model("vit"), 2, tensor=2)
    pieces = plan.rank_stages(1)[1]
    rows = np.concatenate([np.arange(32, 64) + 64 * block for block in range(3)])
    np.testing.assert_array_equal(pieces["qkv.bias"].extract(np.arange(192)), rows)
    assert str(pieces["qkv.weight"]) == "rows 2/2 of each of 3 blocks"
    assert str(pieces["proj.weight"]) == "columns 2/2"
    assert str(pieces["proj.bias"]) == "whole"


@pytest.mark.parametrize(
    ("name", "world", "options"),
    [
        ("lenet", 4, {"tensor": 2}),
        ("vit", 4, {"tensor": 2, "cut": ["branch2"]}),
        ("vit", 4, {"tensor": 4, "layers": {"qkv": "column", "proj": "row"}}),
        ("deep_mlp", 4, {"data": 2, "schedule": "gpipe"}),
        ("lenet", 3, {"trainers": 2, "place": [0, 1, 0], "micro_batches": 2}),
        ("lenet", 3, {"place": [0, 1, 2, 1, 0]}),
    ],
)
def test_the_parts_of_all_ranks_are_the_model(
    name: str, world: int, options: dict[str, Any]
) -> None:
    """Every element of every parameter is on as many ranks as there are copies."""
    plan = split_plan(model(name), world, **options)
    seen = {name: np.zeros(shape, int) for name, shape in plan.spec.parameters().items()}
    for rank in range(world):
        for parameter, piece in plan.rank_stages(rank)[1].items():
            mine = np.zeros(seen[parameter].shape, int)
            piece.insert(mine, np.ones(piece.local_shape, int))
            seen[parameter] += mine
    for parameter, count in seen.items():
        assert count.min() == count.max(), parameter
    actions = [a for rank in range(world) for a in plan.program(rank)]
    copies = plan.mesh.data * plan.mesh.tensor
    assert len(actions) == 2 * len(plan.stages) * plan.micro_batches * copies
    assert len(set(actions)) * copies == len(actions)


def test_trainers_take_micro_batches_in_turn() -> None:
    plan = split_plan(
        model("lenet"), 3, trainers=2, place=[0, 1, 0], micro_batches=4, schedule="gpipe"
    )
    assert [plan.owner(0, 1, 0, micro) for micro in range(4)] == [1, 2, 1, 2]
    assert [plan.owner(0, 2, 0, micro) for micro in range(4)] == [0] * 4
    assert {a.micro for a in plan.program(1)} == {0, 2}
    assert {a.stage for a in plan.program(0)} == {0, 2}
    assert plan.same_parameters() == [[1, 2]]
    assert plan.rank_stages(1)[1] == plan.rank_stages(2)[1]
    assert [plan.live(rank) for rank in range(3)] == [8, 2, 2]
    assert [told["live"] for told in traffic.describe(plan, 8)["ranks"]] == [8, 2, 2]
