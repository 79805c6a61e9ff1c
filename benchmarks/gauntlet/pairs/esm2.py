"""ESM-2 with 35 million parameters: fair-esm and transformers."""

import torchvision_first  # noqa: F401
from torch import nn

SIZE = 480


class Logits(nn.Module):
    """A language model whose only output is its logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens)["logits"]


def build_esm():
    from esm import Alphabet
    from esm.model.esm2 import ESM2

    alphabet = Alphabet.from_architecture("ESM-1b")
    return Logits(ESM2(num_layers=12, embed_dim=SIZE, attention_heads=20, alphabet=alphabet))


def build_transformers():
    from transformers import EsmConfig, EsmForMaskedLM

    config = EsmConfig(
        vocab_size=33,
        mask_token_id=32,
        pad_token_id=1,
        hidden_size=SIZE,
        num_hidden_layers=12,
        num_attention_heads=20,
        intermediate_size=4 * SIZE,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        position_embedding_type="rotary",
        token_dropout=True,
        layer_norm_eps=1e-5,
    )
    return EsmForMaskedLM(config)
