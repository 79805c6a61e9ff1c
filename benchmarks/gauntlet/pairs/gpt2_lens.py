"""GPT-2 small: transformers and TransformerLens."""

import torchvision_first  # noqa: F401


def build_transformers():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    return GPT2LMHeadModel(config)


def build_lens():
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        n_layers=12,
        d_model=768,
        n_ctx=1024,
        d_head=64,
        d_vocab=50257,
        act_fn="gelu_new",
        device="cpu",
    )
    return HookedTransformer(config)
