"""BERT with a classification head, in any size."""

from __future__ import annotations

from dataclasses import dataclass

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.layers import (
    GELU,
    Attention,
    Bias,
    Branch,
    Dropout,
    Embedding,
    First,
    LayerNorm,
    Linear,
    Merge,
    Position,
    Tanh,
)
from dualml.algorithms.model.spec import ModelSpec

Layers = list[tuple[str, Layer]]


@dataclass(frozen=True)
class BertSizes:
    """Sizes of a BERT; the default is BERT-tiny's.

    Source: Turc et al. 2019, "Well-Read Students Learn Better", table 1, with Devlin et al. 2019,
    "BERT: Pre-training of Deep Bidirectional Transformers", app. A.2 for the dropout.

    Attributes:
        inner: width of the hidden layer in a block's MLP.
        dropout, head_dropout: dropout rates in and after the blocks, and before the head; 0: no
            such layer.
        eps: ε of the layer norms.
    """

    blocks: int = 2
    width: int = 128
    heads: int = 2
    inner: int = 512
    dropout: float = 0.1
    head_dropout: float = 0.1
    eps: float = 1e-12


TINY = BertSizes()


def bert(
    words: int = 2000, length: int = 32, classes: int = 6, sizes: BertSizes = TINY
) -> ModelSpec:
    """Return BERT for sentences of ``length`` tokens from a vocabulary of ``words``, without
    weights: token, position and segment embeddings are added; blocks with the norm after each
    residual connection; the first position, ``[CLS]``, is classified.

    Source: Devlin et al. 2019, sec. 3 and app. A, and https://github.com/google-research/bert.
    Attention weights are not dropped: `Dropout` is the only random layer here.
    """
    norm = LayerNorm(sizes.width, sizes.eps)
    layers: Layers = [
        ("embedding", Embedding(words, sizes.width)),
        ("kind", Bias(sizes.width)),
        ("position", Position(length, sizes.width)),
        ("embedding_norm", norm),
        *dropout_layers("embedding_dropout", sizes.dropout),
    ]
    for i in range(1, sizes.blocks + 1):
        layers += [
            (f"attention_branch{i}", Branch()),
            (f"qkv{i}", Linear(sizes.width, 3 * sizes.width)),
            (f"attention{i}", Attention(sizes.heads, masked=True)),
            (f"out{i}", Linear(sizes.width, sizes.width)),
            *dropout_layers(f"out_dropout{i}", sizes.dropout),
            (f"attention_merge{i}", Merge()),
            (f"attention_norm{i}", norm),
            (f"mlp_branch{i}", Branch()),
            (f"up{i}", Linear(sizes.width, sizes.inner)),
            (f"gelu{i}", GELU()),
            (f"down{i}", Linear(sizes.inner, sizes.width)),
            *dropout_layers(f"down_dropout{i}", sizes.dropout),
            (f"mlp_merge{i}", Merge()),
            (f"mlp_norm{i}", norm),
        ]
    layers += [
        ("first", First()),
        ("pooler", Linear(sizes.width, sizes.width)),
        ("tanh", Tanh()),
        *dropout_layers("head_dropout", sizes.head_dropout),
        ("head", Linear(sizes.width, classes)),
    ]
    return ModelSpec("bert", (length,), tuple(layers))


def dropout_layers(name: str, rate: float) -> Layers:
    """Return a list with one Dropout layer of this rate called ``name``; an empty list for rate
    0."""
    return [(name, Dropout(rate))] if rate else []
