"""BERT base of transformers: attention written out, and PyTorch's fused attention."""

import torchvision_first  # noqa: F401


def build(attention):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0)
    config._attn_implementation = attention
    return BertForMaskedLM(config)


def build_eager():
    return build("eager")


def build_sdpa():
    return build("sdpa")
