"""What autograd keeps of each layer on a CPU in float32, as `dualml.model.kept` counts it.

Attention is one fused kernel there, which keeps no scores: of every row of them it keeps the
logarithm of the sum that the softmax divides by, and computes the rest again itself (Dao et al.
2022, "FlashAttention", sec. 3.1). What oneDNN's kernel of an LSTM keeps is its own affair.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dualml.model.base import Layer, Shape
from dualml.model.decoder import GroupedAttention, RMSNorm, SwiGLU, Tied
from dualml.model.kept import Keeps, Rule, kept, mask_bytes
from dualml.model.layers import (
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
from dualml.model.recompute import Groups
from dualml.model.spec import ModelSpec

WIDTH, INDEX = 4, 8


def sums(layer: Attention, before: Shape, after: Shape) -> int:
    """Of each head and position; and what is added to scores where something is not to be seen."""
    positions = before[0]
    seen = positions * (positions if layer.causal else 1)
    return WIDTH * (layer.heads * positions + (seen if layer.masked else 0))


def grouped(layer: GroupedAttention) -> Keeps:
    """As of `Attention`, where queries, keys and values are parts of what was taken: not those that
    are turned, nor those of several groups, of which each head has its own."""
    several = layer.each > 1 and layer.kv_heads > 1
    row = layer.length * layer.heads * layer.width
    keys = layer.length * layer.kv_heads * layer.width
    copied = 3 * row if several else row + keys if layer.base else 0
    own = WIDTH * (layer.heads * layer.length + copied)
    return Keeps(taken=not several, given=True, own=lambda layer, before, after: own)


def shares(layer: MeanPool, before: Shape, after: Shape) -> int:
    return WIDTH * before[0] if layer.masked else 0


#: Layer → values that PyTorch saves for its backward pass, or a function of the layer that returns
#: them.
KEPT: Mapping[type[Layer], Rule] = {
    Linear: Keeps(taken=True),
    Conv2d: Keeps(taken=True),
    MaxPool2d: Keeps(taken=True, own=lambda layer, before, after: INDEX * math.prod(after)),
    ReLU: Keeps(given=True),
    Tanh: Keeps(given=True),
    GELU: Keeps(taken=True),
    Flatten: Keeps(view=True),
    Bias: Keeps(),
    RowBias: Keeps(),
    # The row of every token, an int32, and whether it has one.
    Embedding: Keeps(own=lambda layer, before, after: 5 * math.prod(before)),
    # Mean and one over the deviation of every position.
    LayerNorm: Keeps(
        taken=True, own=lambda layer, before, after: 2 * WIDTH * math.prod(after[:-1])
    ),
    Dropout: Keeps(own=mask_bytes),
    # What is normal, and one over the size of every position.
    RMSNorm: Keeps(
        taken=True,
        own=lambda layer, before, after: WIDTH * (math.prod(after) + math.prod(after[:-1])),
    ),
    # g · σ(g), by which u is multiplied.
    SwiGLU: Keeps(taken=True, own=lambda layer, before, after: WIDTH * math.prod(after)),
    GroupedAttention: grouped,
    Tied: Keeps(taken=True),
    Attention: Keeps(taken=True, given=True, own=sums),
    Position: Keeps(),
    Rows: Keeps(view=True),
    MeanPool: Keeps(own=shares),
    First: Keeps(view=True),
    Branch: Keeps(view=True),
    Merge: Keeps(),
}


def kept_of(spec: ModelSpec, samples: int, groups: Groups = ()) -> int | None:
    """Bytes of a batch with its cross entropy, which keeps the logarithms of what it is given, and
    the weight that it divides by; None where a layer's are not known."""
    own = kept(spec, KEPT, WIDTH, groups)
    logits = math.prod(list(spec.shapes().values())[-1])
    return None if own is None else samples * (own + WIDTH * logits) + WIDTH
