"""Stages of a pipeline: their layers, and the parameters on one of their devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.planning.planner.activations import DUALPIPE, Floats
from dualml.planning.planner.engine import MEGATRON, TrainingEngine
from dualml.planning.planner.layouts import Layouts
from dualml.planning.planner.shape import Shape


@dataclass(frozen=True)
class StageParameters:
    """Parameters on one device of a stage, before ZeRO shards them.

    Attributes:
        dense: parameters that ZeRO shards over all replicas.
        experts: parameters of routed experts, which it shards over those that hold the same.
    """

    dense: Floats
    experts: Floats

    @property
    def total(self) -> Floats:
        """Sum of both, for each layout."""
        return self.dense + self.experts


def layers_in_stage(shape: Shape, x: Layouts, stage: Any) -> Floats:
    """Return the number of layers of stage ``stage``, from 0, in each layout; 0 behind the last
    stage.

    If pp does not divide the layers, the last stages have one layer less, except that the first
    stage takes the place of one of them. Where a layout says the layers of its first or last stage,
    the others share the rest evenly.
    """
    most, short = -(-shape.layers // x.pp), (-shape.layers) % x.pp
    front, back = (short >= 2) & (stage == 0), (short >= 1) & (stage == x.pp - 1)
    less = front | back | ((stage >= 1) & (stage >= x.pp - short + 1))
    even = np.where(stage < x.pp, most - less, 0).astype(float)
    said = (x.first_layers > 0) | (x.last_layers > 0)
    if not said.any():
        return even
    others = x.pp * x.chunks - (x.first_layers > 0) - (x.last_layers > 0)
    rest = (shape.layers - x.first_layers - x.last_layers) / np.maximum(others, 1)
    first = np.where((stage == 0) & (x.first_layers > 0), x.first_layers - rest, 0.0)
    last = np.where((stage == x.pp - 1) & (x.last_layers > 0), x.last_layers - rest, 0.0)
    uneven = np.where(stage < x.pp, x.chunks * rest + first + last, 0.0)
    return np.where(said, uneven, even)


def stage_layers(shape: Shape, x: Layouts) -> tuple[Floats, Floats, Floats]:
    """Return the number of layers of the first stage, of the second one and of the last one in each
    layout; 0 for a second stage that is the last or missing, and for a last one that is the
    first."""
    first, second, last = (layers_in_stage(shape, x, stage) for stage in (0 * x.pp, 1, x.pp - 1))
    return first, np.where(x.pp > 2, second, 0.0), np.where(x.pp > 1, last, 0.0)


def moe_layers_in_stage(shape: Shape, x: Layouts, stage: Any, layers: Any) -> Any:
    """Return how many of the ``layers`` of stage ``stage``, from 0, have experts, for each layout:
    none of the model's dense first layers, and the same share of all the others."""
    if not shape.moe_layers:
        return np.zeros(len(x))
    each = shape.layers / (x.pp * x.chunks)
    dense = np.clip(shape.dense_layers - stage * each, 0, layers / x.chunks)
    share = shape.moe_layers / max(shape.layers - shape.dense_layers, 1)
    return (layers - dense) * share


def fullest_parameters(shape: Shape, x: Layouts, engine: TrainingEngine = MEGATRON) -> Floats:
    """Return the parameters, before ZeRO shards them, of one stage on a device: the first, second
    or last, whichever has most layers (the first of equals, also if its layers are smaller). The
    embedding is counted whichever it is, the output layer only with a single stage, and with
    DualPipe only one of a device's two stages."""
    return fullest_stage(shape, x, engine).total


def fullest_stage(shape: Shape, x: Layouts, engine: TrainingEngine = MEGATRON) -> StageParameters:
    """Return the parameters of `fullest_parameters` in two parts, dense ones and those of routed
    experts."""
    layers_of = np.stack(stage_layers(shape, x))
    layers, stage = (
        layers_of.max(0),
        np.choose(layers_of.argmax(0), [0 * x.pp, 0 * x.pp + 1, x.pp - 1]),
    )
    return device_parameters(
        shape, x, layers, moe_layers_in_stage(shape, x, stage, layers), True, x.pp == 1, engine
    )


def stage_parameters(
    shape: Shape, x: Layouts, stage: Any, engine: TrainingEngine = MEGATRON
) -> StageParameters:
    """Return the parameters on one device of stage ``stage``, from 0, before ZeRO shards them; 0 if
    a layout has no such stage. DualPipe holds the stage at the other end, too."""
    found = _plain_parameters(shape, x, stage, engine)
    twice = (x.schedule == DUALPIPE) & (x.pp > 1)
    if not twice.any():
        return found
    other = _plain_parameters(shape, x, x.pp - 1 - stage, engine)
    return StageParameters(found.dense + twice * other.dense, found.experts + twice * other.experts)


def _plain_parameters(
    shape: Shape, x: Layouts, stage: Any, engine: TrainingEngine
) -> StageParameters:
    """Return the parameters on one device of stage ``stage``, from 0, for each layout, whatever its
    schedule; 0 if there is no such stage."""
    layers = layers_in_stage(shape, x, stage)
    there = layers > 0
    moe = moe_layers_in_stage(shape, x, stage, layers)
    front, back = there & (stage == 0), there & (stage == x.pp - 1)
    return device_parameters(shape, x, layers, moe, front, back, engine)


def device_parameters(
    shape: Shape,
    x: Layouts,
    layers: Any,
    moe: Any,
    front: Any,
    back: Any,
    engine: TrainingEngine,
) -> StageParameters:
    """Return the parameters on one device of a stage.

    The last stage has a second copy of a tied embedding. Tensor parallelism splits the bias of a
    matrix whose outputs are split; other biases and the norms are replicated, and so are heads of
    keys and values that are fewer than the devices.

    Args:
        layers: number of layers.
        moe: how many of them have experts.
        front, back: whether it is the first and the last stage.
    """
    words = shape.vocabulary * shape.hidden
    table = words / np.where(engine.splits_embedding, x.tp, 1)
    ends = front * (table + shape.embedding_parameters - words) + back * shape.norm_parameters
    ends = ends + np.where(back & ~(front & np.bool_(shape.tied)), table, 0.0)
    ends = ends + back * shape.has_bias("output") * shape.vocabulary / x.tp
    dense = layers * attention_parameters(shape, x) + (layers - moe) * _ffn(shape, shape.ffn, x.tp)
    if not shape.experts:
        return StageParameters(np.asarray(dense + ends), np.zeros(len(x)))
    shared = shape.shared_experts * _ffn(shape, shape.expert_width, x.tp)
    held = np.maximum(shape.experts / x.ep, 1) * _ffn(shape, shape.expert_width, x.etp)
    return StageParameters(
        np.asarray(dense + ends + moe * (shared + shape.router_parameters)), np.asarray(moe * held)
    )


def attention_parameters(shape: Shape, x: Layouts) -> Any:
    """Return the parameters of a layer outside of its feed-forward part on one device, those of
    attention and of the norms, for each layout."""
    split = shape.attention_matrices + shape.attention_biases
    copies = np.maximum(shape.key_heads_on(x.tp) * x.tp / shape.kv_heads, 1) - 1
    keys = (shape.hidden + shape.has_bias("qkv")) * (shape.keys + shape.values)
    return split / x.tp + shape.whole_parameters + np.where(shape.latent, 0, copies * keys) / x.tp


def _ffn(shape: Shape, width: int, tp: Any) -> Any:
    """Return the parameters of a feed-forward part of this width on one of ``tp`` devices."""
    split = shape.ffn_matrix_elements(width) + shape.ffn_biases(width)
    return split / tp + shape.has_bias("mlp") * shape.hidden
