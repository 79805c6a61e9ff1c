"""TinyLlama's shape with four of its layers: litgpt and transformers."""

import torchvision_first  # noqa: F401

LAYERS = 4


def build_litgpt():
    from litgpt import GPT, Config

    return GPT(Config.from_name("tiny-llama-1.1b", n_layer=LAYERS))


def build_transformers():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=LAYERS,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        use_cache=False,
    )
    return LlamaForCausalLM(config)
