"""GPT-2 small of transformers: attention written out, and PyTorch's fused attention."""

import torchvision_first  # noqa: F401


def build(attention):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    config._attn_implementation = attention
    return GPT2LMHeadModel(config)


def build_eager():
    return build("eager")


def build_sdpa():
    return build("sdpa")
