"""Rules that the sizes of a model must keep, and the errors that name what breaks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dualml.common.errors import UserError

if TYPE_CHECKING:
    from dualml.planning.planner.sizes import ModelSizes

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
