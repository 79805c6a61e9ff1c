"""Bytes on a device: weights, gradients, optimizer state, activations, and what is beside them.

Sources: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models" (weights, gradients and optimizer state); Korthikanti et al. 2022, "Reducing Activation
Recomputation in Large Transformer Models" (activations, see `activations`). What software adds to
them is in `training_engine`, with its sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.parallel.memory import sharding_ranks
from dualml.planning.planner.activations import Floats as Floats
from dualml.planning.planner.activations import backward_bytes
from dualml.planning.planner.activations import layer_activations as layer_activations
from dualml.planning.planner.activations import micro_batches_in_flight as micro_batches_in_flight
from dualml.planning.planner.engine import MEGATRON, PrecisionBytes, TrainingEngine
from dualml.planning.planner.engine import PRECISIONS as PRECISIONS
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.shape import Shape
from dualml.planning.planner.stages import (
    StageParameters,
    device_parameters,
    stage_parameters,
)
from dualml.planning.planner.stages import fullest_parameters as fullest_parameters
from dualml.planning.planner.stages import layers_in_stage as layers_in_stage
from dualml.planning.planner.stages import stage_layers as stage_layers
from dualml.planning.planner.training_engine import RECOMPUTE_FULL as RECOMPUTE_FULL
from dualml.planning.planner.training_engine import RECOMPUTE_NONE
from dualml.planning.planner.training_engine import RECOMPUTE_SELECTIVE as RECOMPUTE_SELECTIVE


@dataclass(frozen=True)
class LayoutMemory:
    """Bytes on the fullest device of each layout.

    Attributes:
        weights, gradients, optimizer: weights, gradients and optimizer state, sharded by ZeRO.
        gathered: what ZeRO-3 gathers at once: a layer, the embedding or the output, with some
            engines also the next one and gradients.
        activations: saved for the backward pass.
        working: recomputed activations of one layer at a time, and gradients of activations; 0
            where the loss needs more, which is over by then, if the engine ``counts_gradients``.
        logits: logits of one micro-batch, with the copies and gradients that the loss makes; 0
            where a layer's backward pass needs more, for the same engines.
        raw_gradients: gradients that the backward pass writes beside those that are summed.
        buffers: the engine's buckets for messages.
        communicators: the context of the device and the communicators of its groups.
        fragments: reserved by the allocator and not used.
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    gathered: Floats
    activations: Floats
    working: Floats
    logits: Floats
    raw_gradients: Floats
    buffers: Floats
    communicators: Floats
    fragments: Floats

    @property
    def total(self) -> Floats:
        """Sum over all parts for each layout, in bytes: what the system counts for the device."""
        return np.asarray(sum(vars(self).values()))

    @property
    def reserved(self) -> Floats:
        """Bytes that the framework's allocator reserves, for each layout."""
        return np.asarray(self.total - self.communicators)

    @property
    def allocated(self) -> Floats:
        """Bytes of tensors at the peak, for each layout."""
        return np.asarray(self.reserved - self.fragments)

    def describe(self, row: int) -> dict[str, float]:
        """Return part → bytes of the layout in ``row``, from 0."""
        return {key: float(values[row]) for key, values in vars(self).items()}


def estimate_memory(
    shape: Shape,
    x: Layouts,
    precision: PrecisionBytes,
    fused: bool = False,
    engine: TrainingEngine = MEGATRON,
) -> LayoutMemory:
    """Return the memory of the fullest device of each layout, which is in the first, the second or
    the last stage."""
    some = (0 * x.pp, np.where(x.pp > 2, 1, x.pp), x.pp - 1)
    layer = _layer_bytes(shape, x, precision, fused, engine)
    stages = [_stage_memory(shape, x, precision, stage, layer, engine) for stage in some]
    fullest = np.stack([each.total for each in stages]).argmax(axis=0)
    rows = np.arange(len(x))
    return LayoutMemory(
        **{
            key: np.stack([vars(each)[key] for each in stages])[fullest, rows]
            for key in vars(stages[0])
        }
    )


def stage_memory(
    shape: Shape,
    x: Layouts,
    precision: PrecisionBytes,
    stage: Any,
    fused: bool = False,
    engine: TrainingEngine = MEGATRON,
) -> LayoutMemory:
    """Return the memory of a device of stage ``stage``, from 0, for each layout in ``x``; all parts
    are 0 if the layout has no such stage."""
    layer = _layer_bytes(shape, x, precision, fused, engine)
    return _stage_memory(shape, x, precision, stage, layer, engine)


def _layer_bytes(
    shape: Shape, x: Layouts, precision: PrecisionBytes, fused: bool, engine: TrainingEngine
) -> tuple[Floats, Floats, Floats]:
    """Return the bytes that a layer saves per micro-batch, those that it needs in its backward
    pass, and those of the context and the communicators, all the same in every stage."""
    everything, saved = layer_activations(shape, x, precision, fused, engine)
    again = np.where(x.recompute == RECOMPUTE_NONE, 0.0, np.maximum(everything - saved, 0.0))
    working = again + backward_bytes(shape, x, precision, fused, engine)
    return saved, working, engine.overhead_bytes(x)


def _stage_memory(
    shape: Shape,
    x: Layouts,
    precision: PrecisionBytes,
    stage: Any,
    layer: tuple[Floats, Floats, Floats],
    engine: TrainingEngine,
) -> LayoutMemory:
    """Return the memory of a device of a stage from the bytes of its layers, see
    `_layer_bytes`."""
    saved, working, overhead = layer
    layers = layers_in_stage(shape, x, stage)
    there = layers > 0
    held = micro_batches_in_flight(x, stage)
    tokens = x.micro * (shape.sequence / x.cp)
    back = stage == x.pp - 1
    logits = tokens * shape.vocabulary / np.where(engine.splits_embedding, x.tp, 1)
    activations = held * layers * saved
    activations = activations + _end_activations(shape, x, precision, stage, held, engine)
    working = there * working
    logits = there * back * logits * engine.logit_bytes(x.tp)
    # The loss is over before the first layer's backward pass begins: only the larger one counts.
    together = 0.0 if engine.counts_gradients else 1.0
    moving = {
        "activations": there * activations,
        "working": np.where(working >= logits, working, together * working),
        "logits": np.where(logits > working, logits, together * logits),
    }
    parameters = stage_parameters(shape, x, stage, engine)
    states = _states(shape, x, precision, parameters, stage, engine)
    fragments = engine.overhead.fragments * (sum(moving.values()) + sum(states.values()))
    return LayoutMemory(
        **states,
        **moving,
        buffers=there * engine.buffer_bytes(x, precision),
        communicators=there * overhead,
        fragments=np.asarray(fragments),
    )


def _end_activations(
    shape: Shape,
    x: Layouts,
    precision: PrecisionBytes,
    stage: Any,
    held: Floats,
    engine: TrainingEngine,
) -> Any:
    """Return the bytes that a stage saves beside its layers: a mask after the embedding, inputs of
    the last norm and of the output layer (Korthikanti et al. 2022, section 4.3), and with some
    engines a stage's output for each micro-batch in flight. With some the first layer saves
    less."""
    front, back = stage == 0, stage == x.pp - 1
    tokens = x.micro * (shape.sequence / x.cp)
    within = np.where(x.sp == 1, x.tp, 1)
    masks = front * held * shape.dropout * engine.mask_bytes * shape.hidden
    inputs = back * precision.element * (2 * shape.hidden + engine.norm_elements(shape))
    once = front * (x.recompute == RECOMPUTE_FULL) * engine.first_layer_savings(shape, x)
    outputs = held * engine.stage_copies * x.chunks * (x.pp > 1)
    vectors = masks + inputs + (outputs - held * once) * precision.element * shape.hidden
    return tokens * vectors / within


def _states(
    shape: Shape,
    x: Layouts,
    precision: PrecisionBytes,
    parameters: StageParameters,
    stage: Any,
    engine: TrainingEngine,
) -> dict[str, Any]:
    """Return the bytes of weights, gradients and state as ZeRO shards them, of what it gathers, and
    of gradients beside the summed ones."""
    stored = engine.stored_weights(x, precision)
    raw = engine.raw_gradients * (precision.element < precision.gradients)
    sizes = PrecisionBytes(stored, precision.gradients, precision.state, precision.element)
    dense_ranks, expert_ranks = (
        sharding_ranks(x.zero, n) for n in (x.zero_devices, x.expert_devices)
    )
    dense = sizes.on_rank(parameters.dense, dense_ranks)
    experts = sizes.on_rank(parameters.experts, expert_ranks)
    own = parameters.dense / dense_ranks.gradients + parameters.experts / expert_ranks.gradients
    sharded = (x.zero == 3) & (x.zero_devices > 1)
    return {
        "weights": dense.weights + experts.weights,
        "gradients": dense.gradients + experts.gradients,
        "optimizer": dense.state + experts.state,
        "gathered": np.where(
            sharded, _gathered_bytes(shape, x, precision, parameters, stage, engine), 0.0
        ),
        "raw_gradients": raw * own,
    }


def _gathered_bytes(
    shape: Shape,
    x: Layouts,
    precision: PrecisionBytes,
    parameters: StageParameters,
    stage: Any,
    engine: TrainingEngine,
) -> Any:
    """Return the bytes that ZeRO-3 gathers: a few units at a time, or all of a stage that keeps
    them for its backward pass; 0 if there is no such stage."""
    moe = 1.0 if shape.moe_layers else 0.0
    layer = device_parameters(shape, x, 1.0, moe, False, False, engine).total
    ends = (stage == 0) | (stage == x.pp - 1)
    table = shape.vocabulary * shape.hidden / np.where(engine.splits_embedding, x.tp, 1)
    unit = np.maximum(layer, table * ends)
    kept = precision.element + engine.kept_gradient_bytes(x, precision)
    whole = engine.gathered_bytes(0.0, layer, precision) + kept * parameters.total
    gathered = np.where(x.reshard == 1, engine.gathered_bytes(unit, layer, precision), whole)
    return np.where(parameters.total > 0, gathered, 0.0)
