"""Models described by a ``config.json`` of Hugging Face's: its keys and types in our terms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.files import read_json
from dualml.common.json_types import JsonMapping
from dualml.common.parse import from_toml
from dualml.planning.planner.config_types import adjust_to_type

#: Our key → equivalent keys of config.json; the first one present is used.
NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "hidden_dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "sequence": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"),
    "head_width": ("head_dim", "kv_channels"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"),
    "experts_per_token": (
        *("num_experts_per_tok", "num_experts_per_token", "num_selected_experts", "moe_top_k"),
    ),
    "expert_ffn": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "dense_layers": ("first_k_dense_replace",),
    "expert_interval": ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"),
    "q_lora_rank": ("q_lora_rank",),
    "kv_lora_rank": ("kv_lora_rank",),
    "rope_width": ("qk_rope_head_dim",),
    "value_width": ("v_head_dim",),
}
#: Keys that mean nothing in a model without experts.
EXPERT_KEYS = (
    *("experts", "experts_per_token", "expert_ffn", "shared_experts"),
    *("dense_layers", "expert_interval"),
)
REQUIRED = ("layers", "hidden", "heads", "vocabulary")
#: Tables inside of a config: of a model with several parts that of its text, and groups of keys.
TEXT_PARTS = ("text_config", "llm_config", "language_config")
KEY_GROUPS = ("attn_config", "ffn_config")
SHARED_KEYS = ("model_type", "tie_word_embeddings")
DROPOUT_KEYS = ("resid_pdrop", "hidden_dropout", "residual_dropout", "resid_pdropout", "dropout")
#: Keys by which a type that is not in configs.toml is taken for one with layers like Llama's.
LLAMA_KEYS = ("rms_norm_eps", "rms_norm_epsilon", "layernorm_rms_eps")


@cache
def model_types() -> JsonMapping:
    """Return model type → what its config.json does not say, in the keys of a model file."""
    table = _tables()["type"]

    def resolve(kind: str) -> dict[str, Any]:
        """Return the keys of a type, with those of the type that it is like."""
        given = dict(table[kind])
        parent = given.pop("like", None)
        return {**(resolve(parent) if parent else {}), **given}

    return {kind: resolve(kind) for kind in table}


@cache
def _tables() -> JsonMapping:
    """Return the tables of configs.toml: types that are read and types that are refused."""
    return from_toml((files("dualml.planning.planner") / "configs.toml").read_text("utf-8"))


def entry_from_config(path: Path, sequence: int | None = None) -> dict[str, Any]:
    """Return the model that a config.json describes, in the keys of a model file, and with
    ``assumed``, a sentence, if its type is not known. ``sequence`` stands in for the number of
    positions if the file has none.

    Raises:
        UserError: no table, a model that cannot be planned, or a missing key, with its remedy.
    """
    found = read_json(path)
    if not isinstance(found, dict):
        raise UserError(f"{path}: model_type None: a config.json is a table of keys")
    config = _flatten(found)
    kind = config.get("model_type")
    _refuse(path, kind, config)
    given = dict(_traits(kind, config))
    for key, names in NAMES.items():
        value = next((config[name] for name in names if config.get(name) is not None), None)
        if value is not None:
            given[key] = value
    if sequence is not None and "sequence" not in given:
        given["sequence"] = sequence
    needed = (*REQUIRED, *given.pop("needs", ()), "sequence")
    missing = [key for key in needed if key not in given]
    if missing:
        key = missing[0]
        remedy = " or give --sequence" if key == "sequence" else ""
        raise UserError(
            f"{path}: {key} is missing ({' or '.join(NAMES[key])}); add it{remedy}, or describe "
            "the model in a TOML file"
        )
    try:
        _apply_common_keys(given, config)
        adjust_to_type(str(kind), given, config)
    except KeyError as error:
        raise UserError(
            f"{path}: {error.args[0]} is missing; add it, or describe the model in a TOML file"
        ) from None
    except TypeError:
        raise UserError(f"{path}: a size is no number; write whole numbers") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return given


def _flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with the keys of its groups (`KEY_GROUPS`) on the top level; for a model of
    several parts (`TEXT_PARTS`) only its text part, with the `SHARED_KEYS` of the whole."""
    for name in TEXT_PARTS:
        if isinstance(config.get(name), dict):
            shared = {key: config[key] for key in SHARED_KEYS if config.get(key) is not None}
            return {**shared, **_flatten(config[name])}
    merged: dict[str, Any] = {}
    for name in KEY_GROUPS:
        if isinstance(config.get(name), dict):
            merged |= config[name]
    return merged | dict(config)


def _refuse(path: Path, kind: Any, config: Mapping[str, Any]) -> None:
    """Raise `UserError` for a model that is no decoder of attention and feed-forward parts, or
    whose type is refused in configs.toml."""
    reason = _tables()["refused"].get(str(kind))
    if reason is None and config.get("is_encoder_decoder"):
        reason = "it has an encoder"
    if reason is None and not any(config.get(name) is not None for name in NAMES["heads"]):
        heads = " or ".join(NAMES["heads"])
        reason = f"it has no attention heads ({heads} is missing; add it if it has some)"
    if reason is not None:
        raise UserError(
            f"{path}: model_type {kind!r} cannot be planned: {reason}; choose a decoder-only "
            "transformer, or describe the model in a TOML file"
        )


def _traits(kind: Any, config: Mapping[str, Any]) -> JsonMapping:
    """Return what the model type ``kind`` says of its layers, in the keys of a model file. An
    unknown type counts as Llama if the config has RMSNorm, else as GPT-2, and ``assumed`` says so
    in a sentence."""
    known: dict[str, JsonMapping] = dict(model_types())
    if kind in known:
        return known[kind]
    like = "llama" if any(key in config for key in LLAMA_KEYS) else "gpt2"
    assumed = f"model_type {kind!r} is not known; its layers are counted like those of {like}"
    return {**known[like], "assumed": assumed}


def _apply_common_keys(given: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Change ``given`` in place by the keys that mean the same in every type: tied embeddings,
    dropout, biases, parallel blocks, dense layers among those with experts; without experts remove
    `EXPERT_KEYS`. Raise `UserError` for dense layers that are not the first ones."""
    if config.get("tie_word_embeddings") is not None:
        given["tied"] = config["tie_word_embeddings"]
    rates = [config[key] for key in DROPOUT_KEYS if isinstance(config.get(key), int | float)]
    if rates:
        given["dropout"] = max(rates) > 0
    biases = set(given.get("biases", ()))
    if config.get("attention_bias"):
        biases |= {"qkv", "attention"}
    if config.get("mlp_bias"):
        biases.add("mlp")
    if config.get("lm_head_bias"):
        biases.add("output")
    if config.get("use_qkv_bias") or config.get("qkv_bias"):
        biases.add("qkv")
    given["biases"] = tuple(sorted(biases))
    if "use_parallel_residual" in config:
        given["parallel"] = config["use_parallel_residual"]
    if not given.get("experts"):
        for key in EXPERT_KEYS:
            given.pop(key, None)
        return
    only = config.get("mlp_only_layers") or []
    if only:
        if sorted(only) != list(range(len(only))):
            raise UserError(
                f"mlp_only_layers {only}: dense layers among those with experts are counted only "
                "at the beginning; describe the model in a TOML file with dense_layers"
            )
        given["dense_layers"] = len(only)
