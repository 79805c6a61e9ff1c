"""Bytes a device holds: weights, gradients, optimizer states, activations.

Sources: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models" (states); Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer
Models" (activations), equations 1 – 6 and section 4.3. Their formulas are for f = 4h, h = a·width
and as many heads of keys and values; here each term is written with the width it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.planner.engine import MEGATRON, Engine, Precision
from dualml.planner.engine import PRECISIONS as PRECISIONS
from dualml.planner.layouts import RECOMPUTED, Layouts
from dualml.planner.shape import Shape

Floats = NDArray[np.float64]
NONE, SELECTIVE, FULL = range(len(RECOMPUTED))


def states(parameters: Any, zero: Any, devices: Any, precision: Precision) -> Floats:
    """Bytes of weights, gradients and optimizer states of a device.

    Args:
        parameters: Ψ that the device has its share of.
        zero: ZeRO's stage.
        devices: N, over which it shards.

    Example:
        >>> [round(float(states(7.5e9, z, 64, PRECISIONS["mixed"])) / 1e9, 1) for z in range(4)]
        [120.0, 31.4, 16.6, 1.9]
    """
    return np.asarray(sum(parts(parameters, zero, devices, precision)), np.float64)


def parts(
    parameters: Any, zero: Any, devices: Any, precision: Precision
) -> tuple[Floats, Floats, Floats]:
    """The same, each for itself."""
    zero, devices = np.asarray(zero), np.asarray(devices, np.float64)
    weights, gradients, optimizer = (
        np.where(zero >= stage, size * parameters / devices, size * parameters)
        for stage, size in ((3, precision.weights), (2, precision.gradients), (1, precision.states))
    )
    return weights, gradients, optimizer


def layer_activations(
    shape: Shape, x: Layouts, precision: Precision, fused: bool = False, engine: Engine = MEGATRON
) -> tuple[Floats, Floats]:
    """Bytes that one layer keeps of one micro-batch: with no recomputation, and with this layout's.

    For GPT in mixed precision sbh(34 + 5as/h) on one device (equation 1), sbh(10 + 24/t + 5as/(ht))
    with tensor parallelism (2), all divided by t with sequence parallelism (4), without 5as/h
    recomputed selectively (6), 2sbh recomputed in full. ``fused``: attention keeps no scores.
    """
    tokens = x.micro * (shape.sequence / x.cp)
    e, mask = precision.element, engine.mask * shape.dropout
    within = np.where(x.sp == 1, x.tp, 1)
    gates = 3 if shape.gated else 2
    # Norms' inputs, and those of the two products that lead into a part; two masks.
    norms = 2 * e * engine.norm(shape)
    whole = tokens * (shape.hidden * (4 * e + 2 * mask) + norms) / within
    inner = 2 * shape.queries + 2 * shape.keys + gates * shape.ffn + engine.gate(shape)
    kept = whole + tokens * e * inner / x.tp
    # Softmax's output, and with dropout a mask and the scores behind it.
    scores = tokens * shape.sequence * shape.heads * (e * (1 + mask) + mask) / x.tp
    kernel = tokens * e * engine.attention(shape, x.tp) / x.tp
    everything = kept + kernel + (0 if fused or engine.fused else scores)
    masks = 2 * mask * engine.masks
    least = tokens * shape.hidden * (e * engine.inputs(x.tp) + masks) / within
    return everything, np.choose(x.recompute, [everything, kept, least])


def layers_of(shape: Shape, x: Layouts, stage: Any) -> Floats:
    """Layers of a stage. Where pp does not divide them, the last stages have one less, and of these
    one is moved to the front; 0 behind the last stage."""
    most, short = -(-shape.layers // x.pp), (-shape.layers) % x.pp
    front, back = (short >= 2) & (stage == 0), (short >= 1) & (stage == x.pp - 1)
    less = front | back | ((stage >= 1) & (stage >= x.pp - short + 1))
    return np.where(stage < x.pp, most - less, 0).astype(float)


def stage_layers(shape: Shape, x: Layouts) -> tuple[Floats, Floats, Floats]:
    """Layers of the first, of the second, where it is not the last, and of the last stage, where it
    is not the first."""
    first, second, last = (layers_of(shape, x, stage) for stage in (0 * x.pp, 1, x.pp - 1))
    return first, np.where(x.pp > 2, second, 0.0), np.where(x.pp > 1, last, 0.0)


def in_flight(x: Layouts, stage: Any) -> Floats:
    """Micro-batches whose activations a stage holds at once: min(m, p − stage); with v stages on a
    device p·(1 + (p − 1)/(pv)) on the first one (Korthikanti et al. 2022, section 4.2.3) and two
    chunks less on each that follows, never more than m."""
    woven = x.pp + (x.pp - 1) / x.chunks - 2 * stage / x.chunks
    most = np.where(x.chunks > 1, woven, x.pp - stage)
    return np.minimum(most, x.micro_batches).astype(float)


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest device of each layout.

    Attributes:
        weights, gradients, optimizer: states, sharded by ZeRO.
        gathered: the largest unit that ZeRO-3 holds whole at once, a layer or an end.
        activations: kept for the way back.
        working: what is recomputed of one layer at a time.
        logits: of one micro-batch, in float32.
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    gathered: Floats
    activations: Floats
    working: Floats
    logits: Floats

    @property
    def total(self) -> Floats:
        return np.asarray(sum(vars(self).values()))

    def describe(self, row: int) -> dict[str, float]:
        return {key: float(values[row]) for key, values in vars(self).items()}


def memory(
    shape: Shape, x: Layouts, precision: Precision, fused: bool = False, engine: Engine = MEGATRON
) -> Memory:
    """The fullest of the first, the second and the last stage, which is one of them."""
    some = (0 * x.pp, np.where(x.pp > 2, 1, x.pp), x.pp - 1)
    stages = [stage_memory(shape, x, precision, stage, fused, engine) for stage in some]
    fullest = np.stack([each.total for each in stages]).argmax(axis=0)
    rows = np.arange(len(x))
    return Memory(**{
        key: np.stack([vars(each)[key] for each in stages])[fullest, rows]
        for key in vars(stages[0])
    })  # fmt: skip


def fullest_parameters(shape: Shape, x: Layouts, engine: Engine = MEGATRON) -> Floats:
    """Of a device of the stage with most layers, as if the embedding stood there."""
    first, second, _ = stage_layers(shape, x)
    front = np.ones(len(x), bool)
    return stage_parameters(shape, x, np.maximum(first, second), front, x.pp == 1, engine)


def stage_parameters(
    shape: Shape, x: Layouts, layers: Floats, front: Any, back: Any, engine: Engine = MEGATRON
) -> Floats:
    """Of one device of a stage; behind the last one stands a second copy of a tied embedding. With
    a matrix whose outputs are split goes its bias; other biases and the norms are everywhere."""
    split = shape.matrices + shape.split_biases
    rest = shape.layer_parameters - split
    words = shape.vocabulary * shape.hidden
    table = words / np.where(engine.tables, x.tp, 1)
    ends = front * (table + shape.embedding_parameters - words) + back * shape.norm_parameters
    ends = ends + np.where(back & ~(front & shape.tied), table, 0.0)
    return np.asarray(layers * (split / x.tp + rest) + ends)


def stage_memory(
    shape: Shape, x: Layouts, precision: Precision, stage: Any, fused: bool = False,
    engine: Engine = MEGATRON,
) -> Memory:  # fmt: skip
    """What a device of one stage of each layout holds; nothing where there is no such stage."""
    everything, kept = layer_activations(shape, x, precision, fused, engine)
    layers = layers_of(shape, x, stage)
    front, back, there = stage == 0, stage == x.pp - 1, layers > 0
    held = in_flight(x, stage)
    parameters = there * stage_parameters(shape, x, layers, front, back, engine)
    weights, gradients, optimizer = parts(parameters, x.zero, x.sharded, precision)
    unit = np.maximum(shape.layer_parameters, shape.vocabulary * shape.hidden * (front | back))
    whole = (x.zero == 3) & (x.sharded > 1) & there
    tokens = x.micro * (shape.sequence / x.cp)
    within = np.where(x.sp == 1, x.tp, 1)
    # Behind the embedding a mask; in front of the output the norm's input and its own (4.3).
    masks = front * held * shape.dropout * engine.mask * shape.hidden
    inputs = back * precision.element * (2 * shape.hidden + engine.norm(shape))
    once = front * (x.recompute == FULL) * engine.spared(shape, x)
    logits = back * tokens * 4.0 * shape.vocabulary / np.where(engine.tables, x.tp, 1)
    again = np.where(x.recompute == NONE, 0.0, everything - kept)
    # In the engine's own way the first layer keeps less.
    ends = masks + inputs - held * once * precision.element * shape.hidden
    return Memory(
        weights, gradients, optimizer,
        gathered=np.where(whole, precision.weights * unit / x.tp, 0.0),
        activations=there * (held * layers * kept + tokens * ends / within),
        working=there * again,
        logits=there * logits,
    )  # fmt: skip
