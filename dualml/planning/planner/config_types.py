"""Adjust model sizes to the keys that single model types use in a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dualml.common.errors import UserError


def _adjust_bigcode(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Set one head of keys and values for all heads, unless the config says otherwise."""
    if config.get("multi_query", True):
        given["kv_heads"] = 1


def _adjust_falcon(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Set heads of keys and values (the older architecture has one for all heads, the later one
    several), parallel blocks, norms and biases, in place."""
    later = config.get("new_decoder_architecture", False)
    if not later:
        given["kv_heads"] = 1 if config.get("multi_query", True) else given["heads"]
    given["parallel"] = later or config.get("parallel_attn", True)
    norms = config.get("num_ln_in_parallel_attn") or (2 if later else 1)
    given["norms"] = norms if given["parallel"] else 2
    given["biased"] = config.get("bias", False)


def _adjust_mpt(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Set biases, the width of the feed-forward part, which MPT's config gives as a ratio, and
    positions, which are not learned with linear biases of scores (ALiBi); no dropout."""
    given["biased"] = not config.get("no_bias", True)
    given["ffn"] = int(config.get("expansion_ratio", 4) * given["hidden"])
    alibi = bool(config.get("alibi"))
    given["learned_positions"] = config.get("learned_pos_emb", True) and not alibi
    given["dropout"] = False


def _adjust_opt(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Set the number of learned positions, two more than the sequence has. Raise `UserError` for an
    embedding that is narrower than the model."""
    given["positions"] = given["sequence"] + 2
    width = config.get("word_embed_proj_dim")
    if width not in (None, given["hidden"]):
        raise UserError(
            f"word_embed_proj_dim {width}: an embedding narrower than the model's width, "
            f"{given['hidden']}, is not counted; describe the model in a TOML file"
        )


def _adjust_head_norms(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Set ``qk_norm`` for models in which queries and keys of each head have a norm of the head's
    width; 0 if the config switches it off."""
    width = given.get("head_width") or given["hidden"] // given["heads"]
    given["qk_norm"] = 2 * width if config.get("use_qk_norm", True) else 0


def _adjust_olmo2(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Set ``qk_norm`` to the whole width of queries and keys of all heads together, which have a
    norm."""
    width = given.get("head_width") or given["hidden"] // given["heads"]
    given["qk_norm"] = width * (given["heads"] + given.get("kv_heads", given["heads"]))


def _adjust_qwen2_moe(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Set the number of shared experts, given by the width of the one shared expert over that of
    the others, and the parameters of its gate."""
    shared = config.get("shared_expert_intermediate_size") or 0
    given["shared_experts"] = shared // given["expert_ffn"]
    given["other_parameters"] = given["hidden"] if shared else 0


def _adjust_llama4(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Move the width that the usual key gives to ``expert_ffn``, and set that of dense layers from
    their own key."""
    given["expert_ffn"] = given["ffn"]
    given["ffn"] = config.get("intermediate_size_mlp") or given["ffn"]


def _adjust_glm4_moe(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Leave out the bias of attention's output, so that only queries, keys and values have one, and
    set ``qk_norm``."""
    given["biases"] = tuple(place for place in given["biases"] if place != "attention")
    given["qk_norm"] = 2 * given.get("head_width", 0) if config.get("use_qk_norm") else 0


def _adjust_gpt_oss(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Count one other parameter per head, its learned sink."""
    given["other_parameters"] = given["heads"]


def _adjust_deepseek(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Set heads of keys and values and the width of a head, the sum of its rotated part and the
    rest. Raise `UserError` for attention with biases."""
    if config.get("attention_bias"):
        raise UserError(
            "attention_bias: biases of compressed vectors are not counted; set it to false"
        )
    given["kv_heads"] = given["heads"]
    given["head_width"] = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]


#: Model type → function that changes the given keys by what the type does with its config.
ADJUSTMENTS: Mapping[str, Callable[[dict[str, Any], Mapping[str, Any]], None]] = {
    "gpt_bigcode": _adjust_bigcode,
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), _adjust_falcon),
    "mpt": _adjust_mpt,
    "opt": _adjust_opt,
    **dict.fromkeys(("qwen3", "qwen3_moe", "gemma3", "gemma3_text"), _adjust_head_norms),
    "olmo2": _adjust_olmo2,
    "qwen2_moe": _adjust_qwen2_moe,
    **dict.fromkeys(("llama4", "llama4_text"), _adjust_llama4),
    "glm4_moe": _adjust_glm4_moe,
    "gpt_oss": _adjust_gpt_oss,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _adjust_deepseek),
}


def adjust_to_type(kind: str, given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Change ``given``, a model in the keys of a model file, in place by what is particular to the
    model type ``kind``; other types change nothing.

    Raises:
        UserError: a choice that is not counted.
        KeyError: a key that the type needs is missing.
    """
    adjust = ADJUSTMENTS.get(kind)
    if adjust is not None:
        adjust(given, config)
