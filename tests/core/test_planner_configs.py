"""Models from a ``config.json`` of Hugging Face's, with the counts of released checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dualml.common.errors import UserError
from dualml.planning.planner.configs import model_types
from dualml.planning.planner.models import find_model

Config = dict[str, Any]


def config(kind: str, layers: int, hidden: int, heads: int, words: int, **more: Any) -> Config:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "vocab_size": words,
        "max_position_embeddings": 4096,
        **more,
    }


def gated(kind: str, sizes: tuple[int, int, int, int], kv: int, ffn: int, **more: Any) -> Config:
    return config(
        kind, *sizes, num_key_value_heads=kv, intermediate_size=ffn, rms_norm_eps=1e-6, **more
    )


LATENT = {
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_layer_freq": 1,
}

RELEASED: dict[str, tuple[Config, int]] = {
    "llama2-7b": (gated("llama", (32, 4096, 32, 32000), 32, 11008), 6_738_415_616),
    "mistral-7b": (gated("mistral", (32, 4096, 32, 32000), 8, 14336), 7_241_732_096),
    "qwen2-7b": (gated("qwen2", (28, 3584, 28, 152064), 4, 18944), 7_615_616_512),
    "qwen3-8b": (
        gated("qwen3", (36, 4096, 32, 151936), 8, 12288, head_dim=128, attention_bias=False),
        8_190_735_360,
    ),
    "qwen1.5-moe-a2.7b": (
        gated(
            *("qwen2_moe", (24, 2048, 16, 151936), 16, 5632),
            num_experts=60,
            num_experts_per_tok=4,
            moe_intermediate_size=1408,
            shared_expert_intermediate_size=5632,
            decoder_sparse_step=1,
        ),
        14_315_784_192,
    ),
    "qwen3-30b-a3b": (
        gated(
            *("qwen3_moe", (48, 2048, 32, 151936), 4, 6144),
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            moe_intermediate_size=768,
            decoder_sparse_step=1,
            mlp_only_layers=[],
        ),
        30_532_122_624,
    ),
    "mixtral-8x7b": (
        gated(
            *("mixtral", (32, 4096, 32, 32000), 8, 14336),
            num_local_experts=8,
            num_experts_per_tok=2,
        ),
        46_702_792_704,
    ),
    "deepseek-v2": (
        gated(
            *("deepseek_v2", (60, 5120, 128, 102400), 128, 12288),
            **LATENT,
            n_routed_experts=160,
            num_experts_per_tok=6,
            n_shared_experts=2,
            moe_intermediate_size=1536,
            first_k_dense_replace=1,
        ),
        235_741_434_880,
    ),
    "deepseek-v3": (
        gated(
            *("deepseek_v3", (61, 7168, 128, 129280), 128, 18432),
            **LATENT,
            n_routed_experts=256,
            num_experts_per_tok=8,
            n_shared_experts=1,
            moe_intermediate_size=2048,
            first_k_dense_replace=3,
        ),
        671_026_419_200,
    ),
    "bloom": (
        {
            "model_type": "bloom",
            "n_layer": 70,
            "n_embed": 14336,
            "num_attention_heads": 112,
            "vocab_size": 250880,
        },
        176_247_271_424,
    ),
    "falcon-7b": (
        config(
            "falcon", 32, 4544, 71, 65024, num_kv_heads=71, multi_query=True, parallel_attn=True
        ),
        6_921_720_704,
    ),
    "falcon-40b": (
        config(
            *("falcon", 60, 8192, 128, 65024),
            num_kv_heads=8,
            new_decoder_architecture=True,
            bias=False,
        ),
        41_303_293_952,
    ),
    "opt-6.7b": (
        {
            **config("opt", 32, 4096, 32, 50272, ffn_dim=16384, word_embed_proj_dim=4096),
            "max_position_embeddings": 2048,
        },
        6_658_473_984,
    ),
    "gemma-7b": (gated("gemma", (28, 3072, 16, 256000), 16, 24576, head_dim=256), 8_537_680_896),
    "gemma2-9b": (gated("gemma2", (42, 3584, 16, 256000), 8, 14336, head_dim=256), 9_241_705_984),
    "phi-2": (
        config("phi", 32, 2560, 32, 51200, intermediate_size=10240, layer_norm_eps=1e-5),
        2_779_683_840,
    ),
    "phi-3-mini": (gated("phi3", (32, 3072, 32, 32064), 32, 8192), 3_821_079_552),
    "mpt-7b": (
        {
            "model_type": "mpt",
            "d_model": 4096,
            "n_heads": 32,
            "n_layers": 32,
            "expansion_ratio": 4,
            "max_seq_len": 2048,
            "vocab_size": 50432,
            "no_bias": True,
            "attn_config": {"alibi": True, "attn_type": "multihead_attention"},
        },
        6_649_286_656,
    ),
    "gpt-neox-20b": (
        config(
            *("gpt_neox", 44, 6144, 64, 50432),
            intermediate_size=24576,
            use_parallel_residual=True,
            tie_word_embeddings=False,
        ),
        20_554_567_680,
    ),
    "gpt-j-6b": (
        {
            "model_type": "gptj",
            "n_layer": 28,
            "n_embd": 4096,
            "n_head": 16,
            "n_positions": 2048,
            "n_inner": None,
            "vocab_size": 50400,
            "tie_word_embeddings": False,
        },
        6_050_882_784,
    ),
    "starcoder2-15b": (
        config(
            *("starcoder2", 40, 6144, 48, 49152),
            num_key_value_heads=4,
            intermediate_size=24576,
            use_bias=True,
            tie_word_embeddings=False,
        ),
        15_957_889_024,
    ),
    "dbrx": (
        {
            "model_type": "dbrx",
            "d_model": 6144,
            "n_heads": 48,
            "n_layers": 40,
            "max_seq_len": 32768,
            "vocab_size": 100352,
            "attn_config": {"kv_n_heads": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        131_596_523_520,
    ),
}


def read(tmp_path: Path, given: Config, sequence: int | None = None) -> Any:
    path = tmp_path / "some" / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(given))
    return find_model(str(path), sequence)


@pytest.mark.parametrize("name", RELEASED)
def test_counts_are_those_of_the_released_checkpoints(tmp_path: Path, name: str) -> None:
    given, parameters = RELEASED[name]
    shape = read(tmp_path, given)
    assert shape.parameters == parameters
    assert shape.name == "some"
    assert not shape.assumed


def test_every_type_is_read(tmp_path: Path) -> None:
    """Each known type is read from a miniature of the usual keys."""
    latent = {key: 8 for key in LATENT if key != "moe_layer_freq"}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    for kind in model_types():
        more = experts | (latent if kind.startswith(("deepseek_", "kimi")) else {})
        shape = read(tmp_path, gated(kind, (4, 64, 4, 100), 2, 256, **more))
        assert shape.layers == 4, kind
        assert shape.parameters > 4 * shape.attention_matrices, kind


@pytest.mark.parametrize("name", ["mixtral-8x7b", "qwen2-7b", "mpt-7b"])
def test_the_text_part_of_a_model_of_several_parts_is_read(tmp_path: Path, name: str) -> None:
    given, parameters = RELEASED[name]
    outer = {"model_type": "llava", "hidden_size": 3, "text_config": given}
    assert read(tmp_path, outer).parameters == parameters


def test_an_unknown_type_is_read_and_says_so(tmp_path: Path) -> None:
    given, parameters = RELEASED["llama2-7b"]
    shape = read(tmp_path, {**given, "model_type": "novel"})
    assert shape.parameters == parameters
    assert (
        shape.assumed
        == "model_type 'novel' is not known; its layers are counted like those of llama"
    )


def test_biases_are_counted_where_a_config_has_them(tmp_path: Path) -> None:
    given, parameters = RELEASED["llama2-7b"]
    h, f = 4096, 11008
    shape = read(tmp_path, {**given, "attention_bias": True})
    assert shape.parameters == parameters + 32 * 4 * h
    shape = read(tmp_path, {**given, "mlp_bias": True})
    assert shape.parameters == parameters + 32 * (2 * f + h)


def test_a_sequence_given_beside_the_file_is_enough(tmp_path: Path) -> None:
    given = {k: v for k, v in RELEASED["llama2-7b"][0].items() if k != "max_position_embeddings"}
    assert read(tmp_path, given, 1024).sequence == 1024
    with pytest.raises(
        UserError, match=r"sequence is missing .max_position_embeddings.*--sequence"
    ):
        read(tmp_path, given)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        (
            "llama2-7b",
            {"num_hidden_layers": None},
            "layers is missing .num_hidden_layers or n_layer",
        ),
        ("llama2-7b", {"num_attention_heads": None}, "no attention heads"),
        ("llama2-7b", {"model_type": "t5"}, "it has an encoder"),
        ("llama2-7b", {"model_type": "mamba"}, "its layers are no attention"),
        ("llama2-7b", {"is_encoder_decoder": True}, "it has an encoder"),
        ("mixtral-8x7b", {"num_local_experts": None}, "experts is missing .num_local_experts"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "experts_per_token is from 1 to experts, 8"),
        ("qwen3-30b-a3b", {"mlp_only_layers": [5]}, "mlp_only_layers"),
        ("deepseek-v3", {"qk_nope_head_dim": None}, "qk_nope_head_dim is missing"),
        ("deepseek-v3", {"first_k_dense_replace": 99}, "dense_layers 99 of 61 layers"),
        ("deepseek-v3", {"attention_bias": True}, "biases of compressed vectors"),
        ("opt-6.7b", {"word_embed_proj_dim": 512}, "an embedding narrower"),
        ("qwen2-7b", {"hidden_size": "x"}, "hidden"),
        ("qwen3-8b", {"head_dim": "x"}, "a size is no number|head_width"),
    ],
)
def test_what_a_config_lacks_is_named(
    tmp_path: Path, name: str, change: Config, reason: str
) -> None:
    given = {key: v for key, v in {**RELEASED[name][0], **change}.items() if v is not None}
    with pytest.raises(UserError, match=reason):
        read(tmp_path, given)
