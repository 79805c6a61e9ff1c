"""Memory as training software takes it: each term against its closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dualml.planning.planner.activations import layer_activations, micro_batches_in_flight
from dualml.planning.planner.engine import (
    DEEPSPEED,
    DUALML,
    ENGINES,
    MEGATRON,
    NANOTRON,
    TORCH,
    TrainingEngine,
    find_engine,
)
from dualml.planning.planner.layouts import RECOMPUTATIONS, Layouts
from dualml.planning.planner.memory import LayoutMemory, estimate_memory, stage_memory
from dualml.planning.planner.models import find_model
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.space import SearchSpace, can_interleave, enumerate_layouts
from dualml.planning.planner.stages import layers_in_stage, stage_parameters

TINY = Shape("tiny", 12, 256, 8, 8, 1024, 1000, 128)
LLAMA = Shape(
    *("llama", 12, 256, 8, 2, 1024, 1000, 128),
    gated=True,
    biased=False,
    learned_positions=False,
    dropout=False,
)
MOE = Shape(
    *("moe", 4, 64, 4, 4, 256, 100, 32),
    gated=True,
    biased=False,
    learned_positions=False,
    dropout=False,
    experts=8,
    experts_per_token=2,
    expert_ffn=128,
    shared_experts=1,
    dense_layers=1,
)


def memory(
    shape: Shape, engine: TrainingEngine, precision: str = "mixed", batch: int = 16, **axes: Any
) -> LayoutMemory:
    x = Layouts.from_axes(batch, **axes)
    return estimate_memory(shape, x, engine.precisions[precision], True, engine)


@pytest.mark.parametrize(
    ("precision", "whole", "fixed", "shared"),
    [("fp16", 20, 4, 16), ("mixed", 18, 6, 12), ("fp32", 16, 8, 8)],
)
def test_bytes_of_megatrons_distributed_optimizer(
    precision: str, whole: int, fixed: int, shared: int
) -> None:
    """20, 18 and 16 bytes per parameter, and with d devices 4 + 16/d, 6 + 12/d and 8 + 8/d
    (Megatron Core, API guide, distributed optimizer)."""
    for zero, d, expected in ((0, 4, float(whole)), (1, 4, fixed + shared / 4)):
        held = memory(TINY, MEGATRON, precision, dp=d, zero=zero)
        states = held.weights + held.gradients + held.optimizer + held.raw_gradients
        assert states[0] == pytest.approx(expected * TINY.parameters)


def test_deepspeed_keeps_gradients_beside_their_sums() -> None:
    """BF16 keeps 2 bytes of weights, 4 of summed gradients and 2 of the backward pass's, FP16 2 and
    2, beside 12/d and 16/d of states; buckets hold half a billion elements each."""
    for precision, fixed, shared in (("mixed", 8, 12), ("fp16", 4, 16)):
        held = memory(TINY, DEEPSPEED, precision, dp=8, zero=1)
        states = held.weights + held.gradients + held.optimizer + held.raw_gradients
        assert states[0] == pytest.approx((fixed + shared / 8) * TINY.parameters)
    assert held.buffers[0] == 5e8 * 4
    assert memory(TINY, DEEPSPEED, dp=8).buffers[0] == 0


def test_torch_shards_float32_and_gathers_16_bits() -> None:
    """16 bytes per parameter are sharded; gathered are the largest unit, the next layer, and a
    layer's gradients in 16 and 32 bits."""
    held = memory(LLAMA, TORCH, dp=8, zero=3)
    assert held.weights[0] + held.gradients[0] + held.optimizer[0] == pytest.approx(
        16 * LLAMA.parameters / 8
    )
    layer = LLAMA.layer_parameters
    assert held.gathered[0] == 2 * (layer + layer) + (2 + 4) * layer
    kept = memory(LLAMA, TORCH, dp=8, zero=3, reshard=False)
    assert kept.gathered[0] == pytest.approx(2 * layer + 6 * layer + (2 + 4) * LLAMA.parameters)


def test_hybrid_sharding_shards_in_its_groups() -> None:
    whole, groups = (memory(LLAMA, TORCH, dp=8, zero=3, replicate=n) for n in (1, 4))
    assert groups.optimizer[0] == pytest.approx(4 * whole.optimizer[0])


@pytest.mark.parametrize(
    ("engine", "nbytes"), [(MEGATRON, 8), (DEEPSPEED, 14), (TORCH, 13), (NANOTRON, 12)]
)
def test_the_loss_copies_the_logits(engine: TrainingEngine, nbytes: int) -> None:
    """Where the loss needs more than a layer's backward pass, its copies of the logits count."""
    shape = Shape("wide", 2, 64, 4, 4, 256, 100_000, 32, tied=True)
    held = memory(shape, engine, micro=4)
    assert held.logits[0] == nbytes * 4 * 32 * 100_000
    assert held.working[0] == 0
    assert memory(TINY, engine, micro=4, recompute="full").logits[0] == 0 or engine is DEEPSPEED


def test_context_and_communicators_are_counted() -> None:
    """544 MB for a group of two devices, 688 MB for more (NVIDIA/nccl, issue 964); one group for
    every axis and one for all devices."""
    context, pair, group = 512e6, 544e6, 688e6
    assert memory(TINY, MEGATRON).communicators[0] == context
    assert memory(TINY, MEGATRON, dp=2).communicators[0] == context + 2 * pair
    held = memory(TINY, MEGATRON, dp=4, tp=8)
    assert held.communicators[0] == context + 3 * group
    held = memory(TINY, MEGATRON, dp=4, tp=2, pp=2)
    assert held.communicators[0] == context + 2 * group + 3 * pair
    assert memory(TINY, DUALML, "fp32", dp=2).communicators[0] == 0


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
def test_the_parts_add_up(engine: TrainingEngine) -> None:
    held = memory(TINY, engine, "fp32", dp=2, tp=2, pp=2, zero=1)
    share = engine.overhead.fragments
    tensors = held.allocated - held.buffers
    assert held.fragments[0] == pytest.approx(share * tensors[0])
    assert held.reserved[0] == pytest.approx(((1 + share) * tensors + held.buffers)[0])
    assert held.total[0] == pytest.approx((held.reserved + held.communicators)[0])
    assert held.total[0] == pytest.approx(sum(held.describe(0).values()))


def test_pytorchs_selective_checkpoints_save_every_second_product() -> None:
    """The input, attention's output, and the products of queries, values, the first matrix and the
    last one of the feed-forward part (torchtitan's selective activation checkpointing)."""
    x = Layouts.from_axes(1, recompute="operations")
    _, saved = layer_activations(LLAMA, x, TORCH.precisions["mixed"], True, TORCH)
    h, values, f = 256, 64, 1024
    assert saved[0] == 2 * 128 * (h + h + h + values + f + h)


def test_schedules_hold_as_many_micro_batches_as_their_papers_say() -> None:
    p, m = 8, 64
    for schedule, first, last in (("1f1b", 8, 1), ("zb-h1", 8, 1), ("zb-h2", 15, 1)):
        x = Layouts.from_axes(m, pp=p, schedule=schedule)
        assert micro_batches_in_flight(x, np.array([0]))[0] == first
        assert micro_batches_in_flight(x, np.array([p - 1]))[0] == last
    x = Layouts.from_axes(m, pp=p, schedule="dualpipe")
    assert micro_batches_in_flight(x, np.array([3]))[0] == p + 1
    plain = Layouts.from_axes(m, pp=p)
    both = stage_parameters(TINY, x, 0).total
    ends = stage_parameters(TINY, plain, 0).total + stage_parameters(TINY, plain, p - 1).total
    assert both[0] == pytest.approx(ends[0])


def test_uneven_ends_leave_the_other_stages_the_rest() -> None:
    x = Layouts.from_axes(8, pp=4, first_layers=2, last_layers=4)
    assert [layers_in_stage(TINY, x, stage)[0] for stage in range(5)] == [2, 3, 3, 4, 0]
    x = Layouts.from_axes(8, pp=2, chunks=2, first_layers=3)
    assert [layers_in_stage(TINY, x, stage)[0] for stage in range(2)] == [6, 6]


@pytest.mark.parametrize(
    ("layers", "pp", "chunks", "possible"),
    [(32, 4, 2, True), (32, 4, 3, False), (126, 16, 8, True), (31, 4, 8, True), (29, 4, 8, False)],
)
def test_virtual_stages_must_divide(layers: int, pp: int, chunks: int, possible: bool) -> None:
    """Only the embedding and the output layer may stand in for a layer each."""
    assert can_interleave(layers, pp, chunks) is possible


def expert_elements(shape: Shape) -> int:
    return 3 * shape.hidden * shape.expert_width


def test_experts_are_distributed_and_the_rest_is_not() -> None:
    experts, routed = expert_elements(MOE), 8
    dense = MOE.parameters - 3 * routed * experts
    for ep in (1, 2, 8):
        x = Layouts.from_axes(8, dp=8, ep=ep, etp=1)
        held = stage_parameters(MOE, x, 0)
        assert held.dense[0] == pytest.approx(dense)
        assert held.experts[0] == pytest.approx(3 * routed * experts / ep)


def test_zero_shards_experts_over_those_that_hold_the_same() -> None:
    held = memory(MOE, MEGATRON, dp=8, ep=4, etp=1, zero=1)
    experts = 3 * 8 * expert_elements(MOE)
    dense = MOE.parameters - experts
    assert held.optimizer[0] == pytest.approx(12 * (dense / 8 + experts / 4 / 2))


def test_the_first_stage_has_the_dense_layers() -> None:
    x = Layouts.from_axes(4, pp=2)
    first, last = (stage_parameters(MOE, x, stage).experts[0] for stage in (0, 1))
    assert (first, last) == pytest.approx((8 * expert_elements(MOE), 16 * expert_elements(MOE)))


def test_a_token_is_copied_to_its_experts() -> None:
    """Each copy saves the expert's input and output and three vectors inside; a capacity factor
    pads them."""
    x = Layouts.from_axes(1)
    precision = MEGATRON.precisions["mixed"]
    plain, padded = (
        layer_activations(Shape(**{**vars(MOE), "capacity": c}), x, precision, True)[0][0]
        for c in (0.0, 1.5)
    )
    copies = 2 * (3 * 128 + 2 * 64)
    assert padded - plain == pytest.approx(2 * 32 * 0.5 * copies * 3 / 4)


def test_the_search_distributes_experts() -> None:
    x = enumerate_layouts(MOE, 16, 16, SearchSpace(zero=(1,), recompute=("none",)))
    assert set(x.ep.tolist()) == {1, 2, 4, 8}
    assert ((x.dp * x.cp * x.tp) % x.ep == 0).all()
    assert (x.etp[x.ep > 1] == 1).all()
    assert (enumerate_layouts(TINY, 16, 16, SearchSpace()).ep == 1).all()


def test_heads_of_keys_are_copied_where_devices_are_more() -> None:
    """PaLM trains one head of keys and values on 12 tensor-parallel devices: each holds it."""
    palm = find_model("palm-540b")
    assert palm.key_heads_on(np.array([1, 12, 48])).tolist() == [1, 1, 1]
    assert LLAMA.key_heads_on(np.array([1, 2, 4, 8])).tolist() == [2, 1, 1, 1]
    x = Layouts.from_axes(12, tp=12)
    held = stage_parameters(palm, x, 0).total[0]
    keys = 2 * palm.hidden * palm.keys * palm.layers
    norms = (palm.layers + 1) * palm.hidden
    split = palm.parameters - keys - norms
    assert held == pytest.approx(split / 12 + keys + norms)


def test_latent_attention_splits_what_leads_out_of_the_compressed_vectors() -> None:
    v2 = find_model("deepseek-v2")
    x = Layouts.from_axes(2, tp=2, etp=2)
    compressed = 5120 * (1536 + 512 + 64) + 1536 + 512 + 2 * 5120
    one, two = (stage_parameters(v2, y, 0).dense[0] for y in (Layouts.from_axes(1), x))
    router = 59 * 160 * 5120
    whole = 60 * compressed + router + 5120
    assert two == pytest.approx(whole + (one - whole) / 2)


def test_stages_that_are_missing_hold_nothing() -> None:
    x = Layouts.from_axes(8, pp=2)
    held = stage_memory(TINY, x, MEGATRON.precisions["mixed"], np.array([5]))
    assert held.total[0] == 0


def test_every_engine_has_its_settings_of_recomputation() -> None:
    for engine, missing in ((MEGATRON, "operations"), (TORCH, "selective")):
        assert missing not in engine.recomputed
        for again in RECOMPUTATIONS:
            x = Layouts.from_axes(1, recompute=again)
            assert bool(engine.can_train(x, TINY)[0]) is (again != missing)


def test_fp8_keeps_the_weights_twice_more() -> None:
    """FP8 adds a copy of the weights and of their transpose, of a byte each."""
    plain, small = (memory(TINY, MEGATRON, precision) for precision in ("mixed", "fp8"))
    assert small.weights[0] - plain.weights[0] == pytest.approx(2 * TINY.parameters)


@pytest.mark.parametrize(
    ("software", "engine"),
    [
        ("torch", TORCH),
        ("fsdp1", TORCH),
        ("megatron-deepspeed", DEEPSPEED),
        ("nanotron", NANOTRON),
        ("megatron", MEGATRON),
        ("something else", MEGATRON),
    ],
)
def test_software_has_the_engine_whose_memory_it_shares(
    software: str, engine: TrainingEngine
) -> None:
    assert find_engine(software) is engine


def test_earlier_allocators_leave_more_unused() -> None:
    earlier = find_engine("aleph-alpha")
    assert earlier.name == MEGATRON.name
    assert earlier.overhead.fragments > MEGATRON.overhead.fragments
