"""Activations that autograd saves for each layer on a CPU in float32, as
`dualml.algorithms.model.saved_activations` counts them.

Attention is one fused kernel there, which saves no scores: for every row of them it saves the
logarithm of the softmax's sum and recomputes the rest (Dao et al. 2022, "FlashAttention", sec.
3.1). Memory inside oneDNN's LSTM kernel is not visible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dualml.algorithms.model.base import Layer, Shape
from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU, Tied
from dualml.algorithms.model.layers import (
    GELU,
    Attention,
    Bias,
    Branch,
    Conv2d,
    Dropout,
    Embedding,
    First,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    MeanPool,
    Merge,
    Position,
    ReLU,
    RowBias,
    Rows,
    Tanh,
)
from dualml.algorithms.model.recompute import Groups
from dualml.algorithms.model.saved_activations import (
    Rule,
    SavedForBackward,
    mask_bytes,
    saved_bytes_per_sample,
)
from dualml.algorithms.model.spec import ModelSpec

WIDTH, INDEX = 4, 8


def attention_bytes(layer: Attention, before: Shape, after: Shape) -> int:
    """Return the bytes per sample of attention's log-sums for each head and position, and of the
    mask that is added to the scores, if the layer is masked. ``before`` is the shape of its input,
    without the batch; ``after`` is ignored."""
    positions = before[0]
    seen = positions * (positions if layer.causal else 1)
    return WIDTH * (layer.heads * positions + (seen if layer.masked else 0))


def grouped_attention_rule(layer: GroupedAttention) -> SavedForBackward:
    """Return the saved activations of grouped attention: like `Attention`, but queries, keys and
    values are views of the input unless they are rotated or copied for several groups."""
    several = layer.heads_per_group > 1 and layer.kv_heads > 1
    row = layer.length * layer.heads * layer.width
    keys = layer.length * layer.kv_heads * layer.width
    copied = 3 * row if several else row + keys if layer.base else 0
    own = WIDTH * (layer.heads * layer.length + copied)
    return SavedForBackward(
        saves_input=not several, saves_output=True, extra_bytes=lambda layer, before, after: own
    )


def mean_pool_bytes(layer: MeanPool, before: Shape, after: Shape) -> int:
    """Return the bytes per sample of the weights of a masked mean over positions, 0 without a mask;
    ``before`` is the shape of its input, and ``after`` is ignored."""
    return WIDTH * before[0] if layer.masked else 0


#: Layer → values that PyTorch saves for its backward pass, or a function of the layer that returns
#: them.
SAVED_BY_LAYER: Mapping[type[Layer], Rule] = {
    Linear: SavedForBackward(saves_input=True),
    Conv2d: SavedForBackward(saves_input=True),
    MaxPool2d: SavedForBackward(
        saves_input=True, extra_bytes=lambda layer, before, after: INDEX * math.prod(after)
    ),
    ReLU: SavedForBackward(saves_output=True),
    Tanh: SavedForBackward(saves_output=True),
    GELU: SavedForBackward(saves_input=True),
    Flatten: SavedForBackward(is_view=True),
    Bias: SavedForBackward(),
    RowBias: SavedForBackward(),
    # The row of every token, an int32, and whether it has a row.
    Embedding: SavedForBackward(extra_bytes=lambda layer, before, after: 5 * math.prod(before)),
    # Mean and one over the deviation of every position.
    LayerNorm: SavedForBackward(
        saves_input=True, extra_bytes=lambda layer, before, after: 2 * WIDTH * math.prod(after[:-1])
    ),
    Dropout: SavedForBackward(extra_bytes=mask_bytes),
    # The normalized input, and the inverse root mean square of every position.
    RMSNorm: SavedForBackward(
        saves_input=True,
        extra_bytes=lambda layer, before, after: WIDTH * (math.prod(after) + math.prod(after[:-1])),
    ),
    # g · σ(g), by which u is multiplied.
    SwiGLU: SavedForBackward(
        saves_input=True, extra_bytes=lambda layer, before, after: WIDTH * math.prod(after)
    ),
    GroupedAttention: grouped_attention_rule,
    Tied: SavedForBackward(saves_input=True),
    Attention: SavedForBackward(saves_input=True, saves_output=True, extra_bytes=attention_bytes),
    Position: SavedForBackward(),
    Rows: SavedForBackward(is_view=True),
    MeanPool: SavedForBackward(extra_bytes=mean_pool_bytes),
    First: SavedForBackward(is_view=True),
    Branch: SavedForBackward(is_view=True),
    Merge: SavedForBackward(),
}


def saved_activation_bytes(spec: ModelSpec, samples: int, groups: Groups = ()) -> int | None:
    """Return the saved bytes of a batch of ``samples`` samples with its cross entropy, which saves
    log-probabilities and the weight that it divides by; None if a layer's are unknown. ``groups``
    are the layers that are recomputed."""
    own = saved_bytes_per_sample(spec, SAVED_BY_LAYER, WIDTH, groups)
    logits = math.prod(list(spec.shapes().values())[-1])
    return None if own is None else samples * (own + WIDTH * logits) + WIDTH
