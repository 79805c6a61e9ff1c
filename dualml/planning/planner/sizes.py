"""The sizes of a decoder-only transformer, dense or with mixtures of experts, and the rules that
they must keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.common.errors import UserError

#: Largest size in a shape: products of sizes stay within the range of float64.
MAX_SIZE = 10**9
#: Parts of a model that may have biases: queries, keys and values, the matrix behind attention, the
#: feed-forward part, norms, the router of experts, and the output layer.
BIASES = ("qkv", "attention", "mlp", "norm", "router", "output")
SIZES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "sequence")
#: Sizes of which 0 means that there is none or the default.
OPTIONAL_SIZES = (
    *("batch", "head_width", "experts", "experts_per_token", "expert_ffn", "shared_experts"),
    *("dense_layers", "q_lora_rank", "kv_lora_rank", "rope_width", "value_width", "norms"),
    *("qk_norm", "positions", "other_parameters"),
)


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of a decoder-only transformer; fields needed only for the exact number of parameters
    come last.

    Args:
        name: name of the model.
        layers: L, transformer layers.
        hidden: h, model width.
        heads: a, attention heads.
        kv_heads: heads of keys and values (Ainslie et al. 2023).
        ffn: f, width inside the feed-forward part of a dense layer.
        vocabulary: V.
        sequence: s, tokens per sample.
        gated: whether two matrices lead into the feed-forward part (SwiGLU, Shazeer 2020).
        tied: whether the output layer uses the embedding's matrix.
        head_width: width of one head of queries and keys; default h / a.
        biased: whether linear layers and norms have biases, except for the output layer.
        learned_positions: whether there is a learned vector per position, instead of rotary
            positions.
        dropout: whether dropout masks are saved for the backward pass.
        batch: published sequences per update; 0: unknown.
        parallel: whether attention and the feed-forward part read the same residual and are added
            to it together (Chowdhery et al. 2022, section 2).
        experts: E, routed experts of a layer (Shazeer et al. 2017); 0: a dense model.
        experts_per_token: k, experts that process a token.
        expert_ffn: width inside one expert; default ``ffn``.
        shared_experts: experts of the same width that process every token (Dai et al. 2024).
        dense_layers: number of first layers with a dense feed-forward part.
        expert_interval: every how many layers there are experts; 1: in every layer.
        capacity: c, tokens that an expert accepts relative to an even distribution (Fedus et al.
            2021, equation 3); 0: dropless.
        q_lora_rank, kv_lora_rank: widths to which multi-head latent attention (DeepSeek-AI 2024,
            section 2.1) compresses queries, and keys with values; 0: no compression.
        rope_width: part of ``head_width`` that is rotated; keys share it with latent attention.
        value_width: width of a head's values; default ``head_width``.
        biases: biases in addition to those of ``biased``; see `BIASES`.
        norms: norms of width h in a layer.
        embedding_norm: whether the embedding is normalised.
        qk_norm: parameters of the norms of queries and keys of a layer.
        positions: number of learned positions; default ``sequence``.
        other_parameters: parameters of a layer that nothing else here counts.
        assumed: what was assumed of a model whose layers are not known, as a sentence.

    Raises:
        UserError: invalid sizes.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    sequence: int
    gated: bool = False
    tied: bool = False
    head_width: int = 0
    biased: bool = True
    learned_positions: bool = True
    dropout: bool = True
    batch: int = 0
    parallel: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    expert_interval: int = 1
    capacity: float = 0.0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    rope_width: int = 0
    value_width: int = 0
    biases: tuple[str, ...] = ()
    norms: int = 2
    embedding_norm: bool = False
    qk_norm: int = 0
    positions: int = 0
    other_parameters: int = 0
    assumed: str = ""

    def __post_init__(self) -> None:
        check_sizes(self)

    @property
    def width(self) -> int:
        """Width of one attention head's queries and keys, in elements."""
        return self.head_width or self.hidden // self.heads

    @property
    def queries(self) -> int:
        """Total width of the queries: h, unless ``head_width`` says otherwise."""
        return self.heads * self.width

    @property
    def keys(self) -> int:
        """Total width of the keys of all key-value heads, in elements."""
        return self.kv_heads * self.width

    @property
    def values(self) -> int:
        """Total width of the values of all key-value heads, in elements."""
        return self.kv_heads * (self.value_width or self.width)

    @property
    def attended(self) -> int:
        """Total width of attention's output before its last matrix, in elements."""
        return self.heads * (self.value_width or self.width)

    @property
    def latent(self) -> bool:
        """Whether keys and values are compressed (multi-head latent attention)."""
        return self.kv_lora_rank > 0

    @property
    def moe_layers(self) -> int:
        """Number of layers with experts: every ``expert_interval``-th one that is not among the
        first ``dense_layers``; 0 for a dense model."""
        if not self.experts:
            return 0
        step = self.expert_interval
        return self.layers // step - min(self.dense_layers, self.layers) // step

    @property
    def expert_width(self) -> int:
        """Width inside one expert, in elements."""
        return self.expert_ffn or self.ffn

    def key_heads_on(self, tp: Any) -> Any:
        """Return how many heads of keys and values each of ``tp`` devices holds, an array like
        ``tp``: those that its heads of queries read. Devices that read the same head hold copies of
        it, as Megatron-LM does where tp exceeds the number of these heads."""
        own, group = np.maximum(self.heads // tp, 1), self.heads // self.kv_heads
        return (group - np.gcd(own, group) + own - 1) // group + 1

    def has_bias(self, place: str) -> bool:
        """Return whether the parts at ``place``, one of `BIASES`, have biases."""
        return place in self.biases or (self.biased and place not in ("output", "router"))


def check_sizes(sizes: ModelSizes) -> None:
    """Raise `UserError` unless the sizes are in range and fit together."""
    name = sizes.name
    for key in SIZES:
        if not 1 <= getattr(sizes, key) <= MAX_SIZE:
            raise UserError(
                f"model {name}: {key} is from 1 to {MAX_SIZE:,}; received {getattr(sizes, key)}"
            )
    for key in OPTIONAL_SIZES:
        if not 0 <= getattr(sizes, key) <= MAX_SIZE:
            raise UserError(
                f"model {name}: {key} is from 0 to {MAX_SIZE:,}; received {getattr(sizes, key)}"
            )
    if sizes.heads % sizes.kv_heads:
        raise UserError(
            f"model {name}: {sizes.kv_heads} heads of keys and values do not divide "
            f"{sizes.heads} heads; choose a divisor"
        )
    if not sizes.head_width and sizes.hidden % sizes.heads:
        raise UserError(
            f"model {name}: {sizes.heads} heads do not divide hidden {sizes.hidden}; say head_width"
        )
    _check_latent(sizes)
    _check_experts(sizes)
    unknown = [place for place in sizes.biases if place not in BIASES]
    if unknown:
        raise UserError(
            f"model {name}: biases are some of {', '.join(BIASES)}; received {unknown[0]!r}"
        )


def _check_latent(sizes: ModelSizes) -> None:
    """Raise `UserError` if latent attention lacks a size, or a size belongs to none."""
    if sizes.q_lora_rank and not sizes.kv_lora_rank:
        raise UserError(
            f"model {sizes.name}: q_lora_rank {sizes.q_lora_rank} needs kv_lora_rank, "
            "to which keys and values are compressed"
        )
    if sizes.kv_lora_rank and not sizes.head_width:
        raise UserError(
            f"model {sizes.name}: latent attention needs head_width, the width of a head of "
            "queries with its rotated part"
        )
    if sizes.rope_width > sizes.width:
        raise UserError(
            f"model {sizes.name}: rope_width {sizes.rope_width} is part of head_width "
            f"{sizes.width}; choose at most that"
        )


def _check_experts(sizes: ModelSizes) -> None:
    """Raise `UserError` if the numbers of experts do not fit together."""
    if sizes.expert_interval < 1:
        raise UserError(
            f"model {sizes.name}: expert_interval is at least 1; received {sizes.expert_interval}"
        )
    if not 0 <= sizes.capacity <= MAX_SIZE:
        raise UserError(
            f"model {sizes.name}: capacity is from 0 (dropless) to {MAX_SIZE:,}; "
            f"received {sizes.capacity:g}"
        )
    if sizes.experts and not 1 <= sizes.experts_per_token <= sizes.experts:
        raise UserError(
            f"model {sizes.name}: experts_per_token is from 1 to experts, {sizes.experts}; "
            f"received {sizes.experts_per_token}"
        )
    if sizes.dense_layers > sizes.layers:
        raise UserError(
            f"model {sizes.name}: dense_layers {sizes.dense_layers} of {sizes.layers} layers; "
            "choose at most that many"
        )
    keys = ("experts_per_token", "expert_ffn", "shared_experts", "dense_layers")
    without = [key for key in keys if getattr(sizes, key) and not sizes.experts]
    if without:
        raise UserError(
            f"model {sizes.name}: {without[0]} needs experts, their number in a layer; add "
            "experts, or leave it out"
        )
