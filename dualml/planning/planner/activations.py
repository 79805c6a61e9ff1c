"""Bytes of activations that a layer saves for the backward pass, by recomputation.

Source: Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
equations 1 – 6 and section 4.3. Their formulas assume f = 4h, h = a·width and as many heads of keys
and values; here each term is written with the width it comes from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.planning.planner.engine import MEGATRON, PrecisionBytes, TrainingEngine
from dualml.planning.planner.layouts import SCHEDULES, Layouts
from dualml.planning.planner.shape import Shape

Floats = NDArray[np.float64]
ZB_H2, DUALPIPE = SCHEDULES.index("zb-h2"), SCHEDULES.index("dualpipe")


def layer_activations(
    shape: Shape,
    x: Layouts,
    precision: PrecisionBytes,
    fused: bool = False,
    engine: TrainingEngine = MEGATRON,
) -> tuple[Floats, Floats]:
    """Return the bytes that one layer saves on a device per micro-batch, for each layout in ``x``:
    without recomputation, and with this layout's. Where only some layers have experts, the mean
    over all layers.

    For GPT in mixed precision sbh(34 + 5as/h) on one device (equation 1), sbh(10 + 24/t + 5as/(ht))
    with tensor parallelism (2), all divided by t with sequence parallelism (4), without 5as/h with
    selective recomputation (6), 2sbh with full recomputation. ``fused``: attention saves no scores.
    """
    tokens = x.micro * (shape.sequence / x.cp)
    e, mask = precision.element, engine.mask_bytes * shape.dropout
    within = np.where(x.sp == 1, x.tp, 1)
    # Inputs of the norms and of the first products of both blocks; two masks.
    vectors = 1 + shape.norms if shape.parallel else 2 + max(shape.norms, 2)
    norms = shape.norms * e * engine.norm_elements(shape)
    gathered = engine.whole_inputs(shape) * e * shape.hidden * (within - 1)
    whole = tokens * (shape.hidden * (vectors * e + 2 * mask) + norms + gathered) / within
    kept = whole + tokens * e * (_attention_inner(shape, x) + ffn_inner(shape, x, engine))
    # Softmax's output, and with dropout a mask and the scores after it.
    scores = tokens * shape.sequence * shape.heads * (e * (1 + mask) + mask) / x.tp
    kernel = tokens * e * engine.attention_elements(shape, x.tp) / x.tp
    everything = kept + kernel + (0 if fused or engine.fused else scores)
    masks = 2 * mask * engine.keeps_recomputed_masks
    least = tokens * shape.hidden * (e * engine.recompute_inputs(x.tp) + masks) / within
    operations = tokens * e * _every_second_product(shape, x)
    return everything, np.choose(x.recompute, [everything, kept, least, operations])


def _attention_inner(shape: Shape, x: Layouts) -> Any:
    """Return the elements per token that attention saves on a device: queries, keys, values and its
    output. Keys of fewer heads than devices are copied; compressed vectors are whole everywhere."""
    own = shape.key_heads_on(x.tp) / shape.kv_heads
    latent = 2 * (shape.q_lora_rank + shape.kv_lora_rank) + shape.latent * shape.rope_width
    split = (shape.queries + shape.attended) / x.tp
    return split + (shape.keys + shape.values) * own + latent


def ffn_inner(shape: Shape, x: Layouts, engine: TrainingEngine) -> Any:
    """Return the elements per token that a feed-forward part saves on a device beside its input,
    the mean over all layers: behind the first matrices, and behind the activation function.

    A token passes k experts of its own and the shared ones: each receives a copy of it, and its
    output is saved to be weighted. A capacity factor pads what the experts receive.
    """
    gates = 3 if shape.gated else 2
    dense = (gates * shape.ffn + engine.gate_elements(shape)) / x.tp
    if not shape.moe_layers:
        return dense
    share = shape.moe_layers / shape.layers
    copies = shape.experts_per_token * (shape.capacity or 1.0)
    routed = copies * (gates * shape.expert_width / x.tp + 2 * shape.hidden * x.etp / x.tp)
    shared = gates * shape.shared_experts * shape.expert_width / x.tp
    # Scores of all experts and their probabilities, in float32.
    router = 4.0 * shape.experts / np.where(x.sp == 1, x.tp, 1)
    return share * (routed + shared + router) + (1 - share) * dense


def _every_second_product(shape: Shape, x: Layouts) -> Any:
    """Return the elements per token that PyTorch's selective checkpoints save on a device: the
    layer's input, attention's output, and every second product, those of queries, values, the
    feed-forward part's first matrix and its last."""
    within = np.where(x.sp == 1, x.tp, 1)
    width = shape.ffn
    if shape.moe_layers:
        passed = shape.experts_per_token + shape.shared_experts
        width = passed * shape.expert_width + shape.experts_per_token * shape.hidden
    split = (shape.queries + shape.attended + width) / x.tp
    values = shape.values * shape.key_heads_on(x.tp) / shape.kv_heads
    return 2 * shape.hidden / within + split + values


def backward_bytes(
    shape: Shape, x: Layouts, precision: PrecisionBytes, fused: bool, engine: TrainingEngine
) -> Any:
    """Return the bytes of gradients of activations that exist at once in the backward pass of a
    layer: those of the feed-forward part or, if larger, of attention's stored scores beyond what
    the feed-forward part has freed by then."""
    if not engine.counts_gradients:
        return np.zeros(len(x))
    tokens = x.micro * (shape.sequence / x.cp)
    within = np.where(x.sp == 1, x.tp, 1)
    inner = ffn_inner(shape, x, engine)
    scores = 0.0 if fused or engine.fused else shape.sequence * shape.heads / x.tp
    most = np.maximum(inner, scores - inner)
    return precision.element * tokens * (2 * shape.hidden / within + most)


def micro_batches_in_flight(x: Layouts, stage: Any) -> Floats:
    """Return the number of micro-batches whose activations stage ``stage``, from 0, holds at once
    in each layout.

    It is min(m, p − stage). With v stages on a device it is p·(1 + (p − 1)/(pv)) on the first one
    (Korthikanti et al. 2022, section 4.2.3) and two chunks less on each one after it, never more
    than m. ZB-H1 holds as many as 1F1B, ZB-H2 2(p − stage) − 1 (Qi et al. 2023, section 3);
    DualPipe holds p + 1 on every device (DeepSeek-AI 2024, arXiv:2412.19437, table 2).
    """
    woven = x.pp + (x.pp - 1) / x.chunks - 2 * stage / x.chunks
    most = np.where(x.chunks > 1, woven, x.pp - stage)
    most = np.where(x.schedule == ZB_H2, 2 * (x.pp - stage) - 1, most)
    most = np.where((x.schedule == DUALPIPE) & (x.pp > 1), x.pp + 1, most)
    return np.minimum(most, x.micro_batches).astype(float)
