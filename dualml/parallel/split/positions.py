"""Sharding of text positions among ranks, and the models that allow it.

``sequence``: between the layers that tensor-parallel ranks share, each rank has a contiguous range
of the positions: norms, dropout, residual connections, the embedding, the head and the loss see
only those. ``context``: each rank has all layers and some positions through the whole model, and
keys and values travel around a ring (`dualml.parallel.split.ring`). In causal attention a late
position costs more than an early one; so the sequence is cut into 2n chunks, and each rank has one
early chunk and the late chunk that mirrors it, which balances the work.

Sources: Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
sec. 4.2.2; Llama Team 2024, "The Llama 3 Herd of Models", sec. 3.3.2, for the chunks.
"""

from __future__ import annotations

from dualml.algorithms.model.decoder import GroupedAttention, RMSNorm, SwiGLU, Tied
from dualml.algorithms.model.layers import (
    GELU,
    Attention,
    Branch,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    Merge,
    Position,
    ReLU,
    RowBias,
    Tanh,
)
from dualml.algorithms.model.spec import ModelSpec
from dualml.backend.stage import OutputSplit
from dualml.common.errors import UserError

#: Kind of position sharding → location of the ranks' slices in (batch, positions, …).
POSITION_SLICES = {"sequence": OutputSplit(1), "context": OutputSplit(1, 2, mirrored=True)}
#: Layers that process every position separately.
POSITIONWISE_LAYERS = (
    Branch,
    Merge,
    Dropout,
    Embedding,
    Position,
    Linear,
    Tied,
    LayerNorm,
    RMSNorm,
    RowBias,
    ReLU,
    Tanh,
    GELU,
    SwiGLU,
)


def check_model(spec: ModelSpec, how: str, parts: int) -> None:
    """Raise `UserError` unless ``parts`` ranks can shard the positions of a model: one of tokens
    whose attention is causal and whose other layers process every position alone, of a length that
    splits into equal chunks. ``how`` is a key of `POSITION_SLICES`."""
    given = f"split.{how}"
    layers = [layer for _, layer in spec.layers]
    if not spec.takes_tokens or not any(
        isinstance(x, Attention | GroupedAttention) for x in layers
    ):
        raise UserError(
            f"{given} shards the positions of a text over ranks that attend to it; {spec.name} has "
            f"no {'attention' if spec.takes_tokens else 'tokens'}: use gpt or gpt_llama"
        )
    for name, layer in spec.layers:
        if isinstance(layer, Attention) and not layer.causal:
            raise UserError(
                f"{given}: {name} of {spec.name} is not causal, every position sees all; it is for "
                "decoders: use gpt or gpt_llama"
            )
        if not isinstance(layer, (GroupedAttention, *POSITIONWISE_LAYERS)):
            raise UserError(
                f"{given}: {name} of {spec.name}, a {type(layer).__name__}, mixes positions; it is "
                "for decoders: use gpt or gpt_llama"
            )
    length, each = spec.input_shape[0], parts * POSITION_SLICES[how].blocks
    if length % each:
        what = f"{each} chunks, two for each of {parts} ranks" if each > parts else f"{parts} ranks"
        near = max(each, round(length / each) * each)
        raise UserError(
            f"{given}: {length} positions do not make {what}, equally long; use data.length = "
            f"{near}, or another number of ranks"
        )


def check_settings(
    tensor: int, sequence: bool, regather: bool, context: int, trainers: int, engine: str
) -> None:
    """Raise `UserError` if settings of `split_plan` about positions contradict each other."""
    if regather and not sequence:
        raise UserError(
            "split.regather collects a second time what split.sequence has collected; add sequence "
            "= true, or leave it out"
        )
    if sequence and tensor == 1:
        raise UserError(
            "split.sequence shards positions over the ranks that share the layers; that needs "
            "tensor >= 2 (split.context shards positions alone)"
        )
    if context > 1 and tensor > 1:
        raise UserError(
            f"split.context = {context} and tensor = {tensor}: ranks shard either the positions or "
            "the layers; use tensor with sequence = true for both in turn, or leave one out"
        )
    if (sequence or context > 1) and (trainers > 1 or engine == "rpc"):
        other = "engine = rpc" if engine == "rpc" else f"trainers = {trainers}"
        given = f"context = {context}" if context > 1 else "sequence = true"
        raise UserError(
            f"split.{given} does not go with {other}, which has no group of ranks that could shard "
            "positions; leave one of them out"
        )
