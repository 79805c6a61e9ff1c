"""GPT-2 small: pytorch-pretrained-bert and transformers, without Dropout."""

import torchvision_first  # noqa: F401
from torch import nn


class Logits(nn.Module):
    """A language model whose only output is its logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens)[0]


def build_pretrained_bert():
    from pytorch_pretrained_bert import GPT2Config, GPT2LMHeadModel

    return Logits(GPT2LMHeadModel(GPT2Config()))


def build_transformers():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    return GPT2LMHeadModel(config)
