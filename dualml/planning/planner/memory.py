"""Bytes on a device: weights, gradients, optimizer state, activations.

Sources: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models" (weights, gradients and optimizer state); Korthikanti et al. 2022, "Reducing Activation
Recomputation in Large Transformer Models" (activations), equations 1 – 6 and section 4.3. Their
formulas assume f = 4h, h = a·width and as many heads of keys and values; here each term is written
with the width it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parallel.memory import sharding_ranks
from dualml.planning.planner.engine import MEGATRON, PrecisionBytes, TrainingEngine
from dualml.planning.planner.engine import PRECISIONS as PRECISIONS
from dualml.planning.planner.layouts import RECOMPUTED, Layouts
from dualml.planning.planner.shape import Shape

Floats = NDArray[np.float64]
#: Codes of the recomputation settings, in the order of `RECOMPUTED`.
RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL = range(len(RECOMPUTED))


def layer_activations(
    shape: Shape,
    x: Layouts,
    precision: PrecisionBytes,
    fused: bool = False,
    engine: TrainingEngine = MEGATRON,
) -> tuple[Floats, Floats]:
    """Return the bytes that one layer saves per micro-batch: without recomputation, and with this
    layout's.

    For GPT in mixed precision sbh(34 + 5as/h) on one device (equation 1), sbh(10 + 24/t + 5as/(ht))
    with tensor parallelism (2), all divided by t with sequence parallelism (4), without 5as/h with
    selective recomputation (6), 2sbh with full recomputation. ``fused``: attention saves no scores.
    """
    tokens = x.micro * (shape.sequence / x.cp)
    e, mask = precision.element, engine.mask_bytes * shape.dropout
    within = np.where(x.sp == 1, x.tp, 1)
    gates = 3 if shape.gated else 2
    # Inputs of the norms and of the first products of both blocks; two masks.
    norms = 2 * e * engine.norm_elements(shape)
    whole = tokens * (shape.hidden * (4 * e + 2 * mask) + norms) / within
    inner = 2 * shape.queries + 2 * shape.keys + gates * shape.ffn + engine.gate_elements(shape)
    kept = whole + tokens * e * inner / x.tp
    # Softmax's output, and with dropout a mask and the scores after it.
    scores = tokens * shape.sequence * shape.heads * (e * (1 + mask) + mask) / x.tp
    kernel = tokens * e * engine.attention_elements(shape, x.tp) / x.tp
    everything = kept + kernel + (0 if fused or engine.fused else scores)
    masks = 2 * mask * engine.keeps_recomputed_masks
    least = tokens * shape.hidden * (e * engine.recompute_inputs(x.tp) + masks) / within
    return everything, np.choose(x.recompute, [everything, kept, least])


def layers_in_stage(shape: Shape, x: Layouts, stage: Any) -> Floats:
    """Return the number of layers of stage ``stage``, from 0, in each layout; 0 behind the last
    stage.

    If pp does not divide the layers, the last stages have one layer less, except that the first
    stage takes the place of one of them.
    """
    most, short = -(-shape.layers // x.pp), (-shape.layers) % x.pp
    front, back = (short >= 2) & (stage == 0), (short >= 1) & (stage == x.pp - 1)
    less = front | back | ((stage >= 1) & (stage >= x.pp - short + 1))
    return np.where(stage < x.pp, most - less, 0).astype(float)


def stage_layers(shape: Shape, x: Layouts) -> tuple[Floats, Floats, Floats]:
    """Return the number of layers of the first stage, of the second one and of the last one in each
    layout; 0 for a second stage that is the last or missing, and for a last one that is the
    first."""
    first, second, last = (layers_in_stage(shape, x, stage) for stage in (0 * x.pp, 1, x.pp - 1))
    return first, np.where(x.pp > 2, second, 0.0), np.where(x.pp > 1, last, 0.0)


def micro_batches_in_flight(x: Layouts, stage: Any) -> Floats:
    """Return the number of micro-batches whose activations stage ``stage``, from 0, holds at once
    in each layout.

    It is min(m, p − stage). With v stages on a device it is p·(1 + (p − 1)/(pv)) on the first one
    (Korthikanti et al. 2022, section 4.2.3) and two chunks less on each one after it, never more
    than m.
    """
    woven = x.pp + (x.pp - 1) / x.chunks - 2 * stage / x.chunks
    most = np.where(x.chunks > 1, woven, x.pp - stage)
    return np.minimum(most, x.micro_batches).astype(float)


@dataclass(frozen=True)
class LayoutMemory:
    """Bytes on the fullest device of each layout.

    Attributes:
        weights, gradients, optimizer: weights, gradients and optimizer state, sharded by ZeRO.
        gathered: the largest unit that ZeRO-3 gathers at once: a layer, the embedding or the
            output.
        activations: saved for the backward pass.
        working: recomputed activations of one layer at a time.
        logits: logits of one micro-batch, in float32.
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
        """Sum over all parts for each layout, in bytes."""
        return np.asarray(sum(vars(self).values()))

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
    stages = [stage_memory(shape, x, precision, stage, fused, engine) for stage in some]
    fullest = np.stack([each.total for each in stages]).argmax(axis=0)
    rows = np.arange(len(x))
    return LayoutMemory(
        **{
            key: np.stack([vars(each)[key] for each in stages])[fullest, rows]
            for key in vars(stages[0])
        }
    )


def fullest_parameters(shape: Shape, x: Layouts, engine: TrainingEngine = MEGATRON) -> Floats:
    """Return the parameters on a device of the stage with most layers in each layout, before ZeRO
    shards them. The embedding is counted there, whichever stage has it; the output layer only with
    a single stage."""
    first, second, _ = stage_layers(shape, x)
    front = np.ones(len(x), bool)
    return stage_parameters(shape, x, np.maximum(first, second), front, x.pp == 1, engine)


def stage_parameters(
    shape: Shape,
    x: Layouts,
    layers: Floats,
    front: Any,
    back: Any,
    engine: TrainingEngine = MEGATRON,
) -> Floats:
    """Return the parameters on one device of a stage with ``layers`` layers, before ZeRO shards
    them; ``front`` and ``back`` say whether it is the first and the last stage.

    The last stage has a second copy of a tied embedding. Tensor parallelism splits the bias of a
    matrix whose outputs are split; other biases and the norms are replicated.
    """
    split = shape.matrices + shape.split_biases
    rest = shape.layer_parameters - split
    words = shape.vocabulary * shape.hidden
    table = words / np.where(engine.splits_embedding, x.tp, 1)
    ends = front * (table + shape.embedding_parameters - words) + back * shape.norm_parameters
    ends = ends + np.where(back & ~(front & shape.tied), table, 0.0)
    return np.asarray(layers * (split / x.tp + rest) + ends)


def stage_memory(
    shape: Shape,
    x: Layouts,
    precision: PrecisionBytes,
    stage: Any,
    fused: bool = False,
    engine: TrainingEngine = MEGATRON,
) -> LayoutMemory:
    """Return the memory of a device of stage ``stage``, from 0, of each layout; 0 if the layout has
    no such stage."""
    everything, saved = layer_activations(shape, x, precision, fused, engine)
    layers = layers_in_stage(shape, x, stage)
    front, back, there = stage == 0, stage == x.pp - 1, layers > 0
    held = micro_batches_in_flight(x, stage)
    parameters = there * stage_parameters(shape, x, layers, front, back, engine)
    kept = precision.on_rank(parameters, sharding_ranks(x.zero, x.zero_devices))
    unit = np.maximum(shape.layer_parameters, shape.vocabulary * shape.hidden * (front | back))
    whole = (x.zero == 3) & (x.zero_devices > 1) & there
    tokens = x.micro * (shape.sequence / x.cp)
    within = np.where(x.sp == 1, x.tp, 1)
    # A mask after the embedding; inputs of the last norm and of the output layer (4.3).
    masks = front * held * shape.dropout * engine.mask_bytes * shape.hidden
    inputs = back * precision.element * (2 * shape.hidden + engine.norm_elements(shape))
    once = front * (x.recompute == RECOMPUTE_FULL) * engine.first_layer_savings(shape, x)
    logits = back * tokens * 4.0 * shape.vocabulary / np.where(engine.splits_embedding, x.tp, 1)
    again = np.where(x.recompute == RECOMPUTE_NONE, 0.0, everything - saved)
    # With some engines the first layer saves less.
    ends = masks + inputs - held * once * precision.element * shape.hidden
    return LayoutMemory(
        kept.weights,
        kept.gradients,
        kept.state,
        gathered=np.where(whole, precision.weights * unit / x.tp, 0.0),
        activations=there * (held * layers * saved + tokens * ends / within),
        working=there * again,
        logits=there * logits,
    )
