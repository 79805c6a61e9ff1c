"""Decoder-only language models in any size: GPT-2's kind and LLaMA's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dualml.algorithms.model.base import Layer
from dualml.algorithms.model.bert import Layers, dropout_layers
from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU, Tied
from dualml.algorithms.model.layers import (
    GELU,
    Branch,
    Embedding,
    LayerNorm,
    Linear,
    Merge,
    Position,
)
from dualml.algorithms.model.spec import ModelSpec
from dualml.common.errors import UserError

#: Base of the rotary angles: Su et al. 2021, "RoFormer", sec. 3.3.2, after Vaswani et al. 2017.
BASE = 10_000.0


@dataclass(frozen=True)
class GPTSizes:
    """Sizes of a decoder; its sequence length is that of a sample, ``data.length``.

    Attributes:
        width: width of the residual stream, a multiple of ``heads``.
        kv_heads: number of key-value heads, a divisor of ``heads``; 0: one per head.
        inner: width of the hidden layer in a block's MLP; 0: 4 · ``width``, or 3 · ``width`` with
            SwiGLU, which has three matrices instead of two.
        dropout: dropout rate after the embedding and at the end of each branch; 0: no such layer.
        tied: whether the head's weight is the embedding table.
    """

    width: int = 64
    blocks: int = 2
    heads: int = 4
    kv_heads: int = 0
    inner: int = 0
    dropout: float = 0.0
    tied: bool = True


GPT = GPTSizes()
LLAMA = GPTSizes(kv_heads=2, tied=False)


def gpt(words: int = 2000, length: int = 32, sizes: GPTSizes = GPT) -> ModelSpec:
    """Return a decoder of GPT-2's kind: learned positions, a norm before each part and one at the
    end, GELU, and the embedding table as the head if ``sizes`` are tied.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", sec. 2.3,
    with the exact Φ in GELU. Attention weights are not dropped: `Dropout` is the only random layer
    here. Weights are initialised like those of all models here (`dualml.algorithms.model.init`).

    Raises:
        UserError: ``width`` is no multiple of ``heads``, or ``heads`` none of ``kv_heads``.
    """
    sizes = resolve_sizes("gpt", sizes, 4)
    norm = LayerNorm(sizes.width)
    front: Layers = [("position", Position(length, sizes.width))]

    def mlp(i: int) -> Layers:
        return [
            (f"up{i}", Linear(sizes.width, sizes.inner)),
            (f"gelu{i}", GELU()),
            (f"down{i}", Linear(sizes.inner, sizes.width)),
        ]

    parts = [(attention_layers(i, length, sizes), mlp(i)) for i in range(1, sizes.blocks + 1)]
    return decoder_spec("gpt", words, length, sizes, norm, front, parts)


def gpt_llama(words: int = 2000, length: int = 32, sizes: GPTSizes = LLAMA) -> ModelSpec:
    """Return a decoder of LLaMA's kind: rotary positions, RMSNorm, SwiGLU, grouped keys and values,
    no biases.

    Source: Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", sec. 2.2;
    Touvron et al. 2023, "Llama 2", app. A.2.1 for grouped heads.

    Raises:
        UserError: ``width`` is no multiple of ``heads``, ``heads`` none of ``kv_heads``, or heads
            have an odd width, which has no pairs to rotate.
    """
    sizes = resolve_sizes("gpt_llama", sizes, 3)
    if (width := sizes.width // sizes.heads) % 2:
        raise UserError(
            f"gpt_llama: width = {sizes.width} and heads = {sizes.heads} make heads of {width} "
            "entries, which rotary positions turn in pairs; use an even number of entries"
        )
    norm = RMSNorm(sizes.width)

    def mlp(i: int) -> Layers:
        return [
            (f"up{i}", Linear(sizes.width, 2 * sizes.inner, bias=False)),
            (f"swiglu{i}", SwiGLU()),
            (f"down{i}", Linear(sizes.inner, sizes.width, bias=False)),
        ]

    blocks = range(1, sizes.blocks + 1)
    parts = [(attention_layers(i, length, sizes, BASE, bias=False), mlp(i)) for i in blocks]
    return decoder_spec("gpt_llama", words, length, sizes, norm, [], parts)


#: Models that take `GPTSizes`, with their default sizes.
DECODERS = {"gpt": (gpt, GPT), "gpt_llama": (gpt_llama, LLAMA)}


def resolve_sizes(name: str, sizes: GPTSizes, times: int) -> GPTSizes:
    """Return the sizes with ``kv_heads`` and ``inner`` filled in where they are 0, after checking
    that they divide.

    Args:
        times: hidden width of a block's MLP as a multiple of ``width``, the default of ``inner``.

    Raises:
        UserError: ``width`` is no multiple of ``heads``, or ``heads`` none of ``kv_heads``.
    """
    kv_heads, inner = sizes.kv_heads or sizes.heads, sizes.inner or times * sizes.width
    sizes = replace(sizes, kv_heads=kv_heads, inner=inner)
    for whole, part in (("width", "heads"), ("heads", "kv_heads")):
        a, b = getattr(sizes, whole), getattr(sizes, part)
        if a % b:
            raise UserError(
                f"{name}: sizes.{whole} = {a} is no multiple of sizes.{part} = {b}; change one"
            )
    return sizes


def attention_layers(
    i: int, length: int, sizes: GPTSizes, base: float = 0.0, *, bias: bool = True
) -> Layers:
    """Return the attention layers of block ``i``: the projection to queries, keys and values, the
    attention itself, and the output projection. ``base`` is that of rotary positions; 0: none."""
    width, heads, groups = sizes.width // sizes.heads, sizes.heads, sizes.kv_heads
    return [
        (f"qkv{i}", Linear(sizes.width, (heads + 2 * groups) * width, bias)),
        (f"attention{i}", GroupedAttention(heads, groups, width, length, base)),
        (f"out{i}", Linear(sizes.width, sizes.width, bias)),
    ]


def decoder_spec(
    name: str,
    words: int,
    length: int,
    sizes: GPTSizes,
    norm: Layer,
    front: Layers,
    parts: list[tuple[Layers, Layers]],
) -> ModelSpec:
    """Return a decoder: the embedding, the layers ``front``, blocks of two residual branches, a
    norm and the head, which is tied to the embedding or has no bias. ``parts`` are the attention
    and the MLP layers of each block; the norm before each is added here."""
    width = sizes.width
    layers: Layers = [("embedding", Embedding(words, width)), *front]
    layers += dropout_layers("embedding_dropout", sizes.dropout)
    for i, both in enumerate(parts, start=1):
        for what, branch in zip(("attention", "mlp"), both, strict=True):
            layers += [
                (f"{what}_branch{i}", Branch()),
                (f"{what}_norm{i}", norm),
                *branch,
                *dropout_layers(f"{what}_dropout{i}", sizes.dropout),
                (f"{what}_merge{i}", Merge()),
            ]
    layers.append(("norm", norm))
    head = Tied(width, words) if sizes.tied else Linear(width, words, bias=False)
    return ModelSpec(name, (length,), (*layers, ("head", head)))
