"""Layers of decoder-only language models; see `layers` for shapes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.model.base import DtypePolicy, Layer, Shape, check_input_shape
from dualml.algorithms.model.layers import LAYERS, Linear
from dualml.common.errors import UserError


@dataclass(frozen=True)
class RMSNorm(Layer):
    """x / √(mean of x² + eps) · w along the last axis: a norm without mean and bias.

    ``weight`` (features,). Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization",
    eq. 4.
    """

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.SINGLE

    features: int
    eps: float = 1e-6

    def parameters(self) -> dict[str, Shape]:
        """Return the shape of ``weight``, (features,)."""
        return {"weight": (self.features,)}

    def output_shape(self, shape: Shape) -> Shape:
        """Return ``shape`` unchanged; raise `UserError` unless its last axis has ``features``
        entries."""
        check_input_shape(
            shape[-1:] == (self.features,), f"RMSNorm takes (…, {self.features})", shape
        )
        return shape


@dataclass(frozen=True)
class SwiGLU(Layer):
    """g · σ(g) · u of the two halves g and u of the last axis: (…, 2·D) → (…, D).

    Source: Shazeer 2020, "GLU Variants Improve Transformer", eq. 5 and 6; the matrices W and V are
    the halves of the `Linear` layer before it.
    """

    blocks: ClassVar[int] = 2

    def output_shape(self, shape: Shape) -> Shape:
        """Return ``shape`` with its last axis halved; raise `UserError` if that axis is missing or
        odd."""
        check_input_shape(
            bool(shape) and shape[-1] % 2 == 0, "SwiGLU takes (…, an even number)", shape
        )
        return (*shape[:-1], shape[-1] // 2)


@dataclass(frozen=True)
class GroupedAttention(Layer):
    """Causal attention in which ``heads`` share the keys and values of ``kv_heads``: (length, G·(r
    + 2)·width) → (length, G·r·width).

    The input has G = ``kv_heads`` groups side by side, each with r = heads / G queries, one key and
    one value of ``width`` entries: a tensor-parallel rank's part of it is contiguous.

    With ``base`` b above 0 queries and keys get a rotary position embedding: entries i and i +
    width/2 of each form a point of a plane, which is rotated by the angle t · b^(−2i / width) at
    position t.

    Source: Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models", sec.
    2.2, Shazeer 2019, "Fast Transformer Decoding", for one group; Su et al. 2021, "RoFormer:
    Enhanced Transformer with Rotary Position Embedding", eq. 14 and 15, whose pairs are neighbours:
    here the pairs are LLaMA's, as in `transformers`.
    """

    dtype_policy: ClassVar[DtypePolicy] = DtypePolicy.PRODUCT

    heads: int
    kv_heads: int
    width: int
    length: int
    base: float = 0.0

    @property
    def heads_per_group(self) -> int:
        """Number of query heads per group, r."""
        return self.heads // self.kv_heads

    def output_shape(self, shape: Shape) -> Shape:
        """Return (length, heads·width); raise `UserError` unless ``shape`` is (length, (heads +
        2·kv_heads)·width) and ``kv_heads`` divides ``heads``."""
        takes = (self.length, (self.heads + 2 * self.kv_heads) * self.width)
        if self.heads % self.kv_heads:
            raise UserError(
                f"GroupedAttention: {self.heads} heads make no {self.kv_heads} equal groups"
            )
        check_input_shape(shape == takes, f"GroupedAttention takes {takes}", shape)
        return (self.length, self.heads * self.width)


@dataclass(frozen=True)
class Tied(Linear):
    """Output layer tied to the `Embedding` ``of``: y = x·Eᵀ, (…, features) → (…, words).

    The embedding table E is one parameter with the embedding's name; its gradient is the sum of
    both uses. With ``bias`` y = x·Eᵀ + b, and b belongs to this layer alone.

    Source: Press and Wolf 2017, "Using the Output Embedding to Improve Language Models".
    """

    bias: bool = False
    of: str = "embedding"

    def parameter_owner(self, name: str, leaf: str = "weight") -> str:
        """Return the embedding ``of`` as the owner of the weight, and this layer, ``name``, as that
        of the bias."""
        return self.of if leaf == "weight" else name


@lru_cache(maxsize=16)
def rotary_cos_sin(layer: GroupedAttention) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return cosine and sine of every rotary angle, (length, width / 2) each, in float64, for a
    layer with ``base`` above 0. They are computed here for all backends, whose own results would
    differ in the rounding of large angles."""
    half = layer.width // 2
    frequency = layer.base ** (-2 * np.arange(half) / layer.width)
    angle = np.arange(layer.length)[:, None] * frequency
    return np.cos(angle), np.sin(angle)


LAYERS.update({kind.__name__: kind for kind in (RMSNorm, SwiGLU, GroupedAttention, Tied)})
