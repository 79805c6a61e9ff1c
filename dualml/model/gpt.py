"""Language models that are decoders alone, in any size: GPT-2's kind and LLaMA's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dualml.errors import UserError
from dualml.model.base import Layer
from dualml.model.bert import Layers, dropout
from dualml.model.decoder import GroupedAttention, RMSNorm, SwiGLU, Tied
from dualml.model.layers import GELU, Branch, Embedding, LayerNorm, Linear, Merge, Position
from dualml.model.spec import ModelSpec

#: Of the angles of positions: Su et al. 2021, "RoFormer", sec. 3.3.2, after Vaswani et al. 2017.
BASE = 10_000.0


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder; the tokens it sees are those of a sample, ``data.length``.

    Attributes:
        width: of the value that runs through it, a multiple of ``heads``.
        kv_heads: how many keys and values the heads share, a divisor of ``heads``; 0: each has its
            own.
        inner: width between the two linear layers of a block; 0: 4 · ``width``, with SwiGLU, which
            has three matrices for two, 3 · ``width``.
        dropout: rate after the embedding and at the end of each branch; 0: no such layer.
        tied: whether the head's weight is the embedding's table.
    """

    width: int = 64
    blocks: int = 2
    heads: int = 4
    kv_heads: int = 0
    inner: int = 0
    dropout: float = 0.0
    tied: bool = True


GPT = Sizes()
LLAMA = Sizes(kv_heads=2, tied=False)


def gpt(words: int = 2000, length: int = 32, sizes: Sizes = GPT) -> ModelSpec:
    """GPT-2's kind: learned positions, a norm before each part and one at the end, GELU, and the
    embedding's table as the head.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", sec. 2.3,
    with Φ itself in GELU. Attention drops no weights: a layer here takes no chance but that of
    `Dropout`. Weights start as those of all models here (`dualml.model.init`).
    """
    sizes = checked("gpt", sizes, 4)
    norm = LayerNorm(sizes.width)
    front: Layers = [("position", Position(length, sizes.width))]

    def mlp(i: int) -> Layers:
        return [
            (f"up{i}", Linear(sizes.width, sizes.inner)),
            (f"gelu{i}", GELU()),
            (f"down{i}", Linear(sizes.inner, sizes.width)),
        ]

    parts = [(attention(i, length, sizes), mlp(i)) for i in range(1, sizes.blocks + 1)]
    return decoder("gpt", words, length, sizes, norm, front, parts)


def gpt_llama(words: int = 2000, length: int = 32, sizes: Sizes = LLAMA) -> ModelSpec:
    """LLaMA's kind: rotary positions, RMSNorm, SwiGLU, keys and values shared by heads, no biases.

    Source: Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", sec. 2.2;
    Touvron et al. 2023, "Llama 2", app. A.2.1 for grouped heads.

    Raises:
        UserError: heads of an odd width have no pairs to turn.
    """
    sizes = checked("gpt_llama", sizes, 3)
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
    parts = [(attention(i, length, sizes, BASE, bias=False), mlp(i)) for i in blocks]
    return decoder("gpt_llama", words, length, sizes, norm, [], parts)


#: The models that take `Sizes`.
DECODERS = {"gpt": (gpt, GPT), "gpt_llama": (gpt_llama, LLAMA)}


def checked(name: str, sizes: Sizes, times: int) -> Sizes:
    """The sizes without zeros.

    Args:
        times: how many times as wide a block is inside.

    Raises:
        UserError: one is no multiple of another.
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


def attention(i: int, length: int, sizes: Sizes, base: float = 0.0, *, bias: bool = True) -> Layers:
    """Of block ``i``: queries, keys and values, attention, and the layer that mixes the heads."""
    width, heads, groups = sizes.width // sizes.heads, sizes.heads, sizes.kv_heads
    return [
        (f"qkv{i}", Linear(sizes.width, (heads + 2 * groups) * width, bias)),
        (f"attention{i}", GroupedAttention(heads, groups, width, length, base)),
        (f"out{i}", Linear(sizes.width, sizes.width, bias)),
    ]


def decoder(
    name: str,
    words: int,
    length: int,
    sizes: Sizes,
    norm: Layer,
    front: Layers,
    parts: list[tuple[Layers, Layers]],
) -> ModelSpec:
    """The embedding, ``front``, blocks of two residual branches, a norm and the head."""
    width = sizes.width
    layers: Layers = [("embedding", Embedding(words, width)), *front]
    layers += dropout("embedding_dropout", sizes.dropout)
    for i, both in enumerate(parts, start=1):
        for what, branch in zip(("attention", "mlp"), both, strict=True):
            layers += [
                (f"{what}_branch{i}", Branch()),
                (f"{what}_norm{i}", norm),
                *branch,
                *dropout(f"{what}_dropout{i}", sizes.dropout),
                (f"{what}_merge{i}", Merge()),
            ]
    layers.append(("norm", norm))
    head = Tied(width, words) if sizes.tied else Linear(width, words, bias=False)
    return ModelSpec(name, (length,), (*layers, ("head", head)))
