"""Blockwise attention over keys and values in MindSpore; see `dualml.parallel.split.ring`.

All matrix products are compiled cells. The operations between them are NumPy's, whose arrays share
the tensors' memory: on a CPU, MindSpore's transpositions, reductions along the last axis and
products with a number take longer than matrix products (2 million scores: the maximum 30 ms, a
division by a number 31 ms), and the relative error of its exponential is up to 7e-6.

Shapes: B batch, T positions of the queries and S of a block, G groups of R heads, K entries.
"""

from __future__ import annotations

import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.algorithms.model.decoder import GroupedAttention
from dualml.backend import Array
from dualml.backend.reference.ring import NumpyBlockAttention
from dualml.backend.stage import Block, visible_slices
from dualml_ms.common.compiled import CompiledCell


class MindSporeBlockAttention:
    """MindSpore implementation of `dualml.backend.stage.BlockAttention`, with the reference's
    layout of heads, for a rank that holds the ``positions`` of a text."""

    def __init__(self, layer: GroupedAttention, positions: Array) -> None:
        self.layout, self.scale = NumpyBlockAttention(layer, positions), 1 / math.sqrt(layer.width)
        self.scores, self.weigh = CompiledCell(Scores()), CompiledCell(WeightedSum())
        self.slopes, self.gradients = CompiledCell(Scores()), CompiledCell(ScoreGradients())

    def split_qkv(self, x: ms.Tensor) -> tuple[ms.Tensor, ms.Tensor]:
        """Split ``x`` (B, T, G·(R + 2)·K) into queries (B, G, R, T, K) and one tensor of keys and
        values (2, B, G, T, K), with rotary embeddings applied."""
        q, kv = self.layout.split_qkv(x.asnumpy())
        return to_tensor(q), to_tensor(kv)

    def attend(
        self, q: ms.Tensor, kv: ms.Tensor, block: Block, state: tuple[ms.Tensor, ms.Tensor] | None
    ) -> tuple[ms.Tensor, ms.Tensor]:
        """Return the outputs (B, G, R, T, K) and log-sum-exp of the scores (B, G, R, T) of queries
        ``q`` over the keys and values seen so far, ``kv`` among them.

        Args:
            block: which queries see which of these keys, see `visible_slices`.
            state: the result for the earlier blocks, which is overwritten; None for the first
                block.
        """
        queries, own, (k, v) = self.select_block(q, kv, block)
        weights = self.masked_scores(own, k, block)
        top = weights.max(-1, keepdims=True)
        weights -= top
        np.exp(weights, out=weights)
        sums = weights.sum(-1, keepdims=True)
        y = (self.weigh(to_tensor(weights), to_tensor(v)).asnumpy() / sums).reshape(own.shape)
        lse = (top + np.log(sums)).reshape(own.shape[:-1])
        if state is None:
            return to_tensor(y), to_tensor(lse)
        whole, sums_so_far = (one.asnumpy() for one in state)
        before = sums_so_far[..., queries]
        after = np.logaddexp(before, lse)
        old, new = (np.exp(one - after)[..., None] for one in (before, lse))
        whole[..., queries, :] = old * whole[..., queries, :] + new * y
        sums_so_far[..., queries] = after
        return to_tensor(whole), to_tensor(sums_so_far)

    def select_block(self, q: ms.Tensor, kv: ms.Tensor, block: Block) -> tuple[slice, Array, Array]:
        """Return the slice of the queries that see the block, these queries times 1/√K as an array,
        and the block's visible keys and values, stacked."""
        queries, keys = visible_slices(block, q.shape[-2])
        own = q.asnumpy()[..., queries, :] * np.float32(self.scale)
        return queries, own, kv.asnumpy()[..., keys, :]

    def masked_scores(self, own: Array, k: Array, block: Block) -> Array:
        """Return the scores (B, G, R·T, S) of scaled queries ``own`` and keys ``k``; if ``block``
        is ``own``, the rank's own keys, −inf is added for keys after the query."""
        scores: Array = self.scores(to_tensor(flatten_heads(own)), to_tensor(k)).asnumpy()
        if block == "own":
            length = own.shape[-2]
            later = np.triu(np.full((length, length), -np.inf, np.float32), 1)
            heads = scores.reshape(*own.shape[:-1], length)
            heads += later
        return scores

    def merge_heads(self, y: ms.Tensor) -> ms.Tensor:
        """Return outputs ``y`` (B, G, R, T, K) as (B, T, G·R·K)."""
        return to_tensor(self.layout.merge_heads(y.asnumpy()))

    def split_heads(self, y: ms.Tensor) -> ms.Tensor:
        """Return ``y`` (B, T, G·R·K) as (B, G, R, T, K)."""
        return to_tensor(self.layout.split_heads(y.asnumpy()))

    def backward_block(
        self,
        q: ms.Tensor,
        kv: ms.Tensor,
        block: Block,
        flow: ms.Tensor,
        y: ms.Tensor,
        lse: ms.Tensor,
    ) -> tuple[ms.Tensor, ms.Tensor]:
        """Return a block's contributions to the gradients of ``q`` and ``kv``, in their shapes,
        zero outside of the block.

        Args:
            flow: gradient of ``y``.
            y, lse: outputs and log-sum-exp over all blocks, the last results of `attend`.
        """
        queries, own, (k, v) = self.select_block(q, kv, block)
        flow, y = (one.asnumpy()[..., queries, :] for one in (flow, y))
        weights = self.masked_scores(own, k, block)
        weights -= flatten_heads(lse.asnumpy()[..., queries, None])
        np.exp(weights, out=weights)
        given = to_tensor(flatten_heads(flow))
        slopes = self.slopes(given, to_tensor(v)).asnumpy()
        slopes -= flatten_heads(np.einsum("...k,...k->...", flow, y)[..., None])
        slopes *= weights
        others = to_tensor(weights), given, to_tensor(flatten_heads(own)), to_tensor(k)
        dq, dk, dv = (one.asnumpy() for one in self.gradients(to_tensor(slopes), *others))
        all_q, all_kv = np.zeros(q.shape, np.float32), np.zeros(kv.shape, np.float32)
        all_q[..., queries, :] = (dq * np.float32(self.scale)).reshape(own.shape)
        keys = visible_slices(block, q.shape[-2])[1]
        all_kv[0][..., keys, :], all_kv[1][..., keys, :] = dk, dv
        return to_tensor(all_q), to_tensor(all_kv)

    def merge_qkv_gradients(self, dq: ms.Tensor, dkv: ms.Tensor) -> ms.Tensor:
        """Combine the gradients of queries, and of keys and values, into that of `split_qkv`'s
        input ``x``, in its shape."""
        return to_tensor(self.layout.merge_qkv_gradients(dq.asnumpy(), dkv.asnumpy()))


def to_tensor(array: Array) -> ms.Tensor:
    """Make a float32 tensor of an array, in the same memory if possible."""
    return ms.Tensor.from_numpy(np.ascontiguousarray(array, np.float32))


def flatten_heads(x: Array) -> Array:
    """Reshape (B, G, R, T, K) to (B, G, R·T, K): the heads of a group see the same keys, so their
    queries form one long sequence."""
    return x.reshape(*x.shape[:2], -1, x.shape[-1])


class Scores(nn.Cell):
    """A cell that returns all scalar products, (B, G, R·T, S), of rows (B, G, R·T, K) with rows (B,
    G, S, K)."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.product = ops.BatchMatMul(transpose_b=True)

    def construct(self, a, b):
        """Return ``a`` (B, G, R·T, K) times the transposed ``b`` (B, G, S, K): (B, G, R·T, S)."""
        return self.product(a, b)


class WeightedSum(nn.Cell):
    """A cell that returns the sums (B, G, R·T, K) of values (B, G, S, K) with weights (B, G, R·T,
    S)."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.product = ops.BatchMatMul()

    def construct(self, weights, v):
        """Return ``weights`` (B, G, R·T, S) times ``v`` (B, G, S, K): (B, G, R·T, K)."""
        return self.product(weights, v)


class ScoreGradients(nn.Cell):
    """A cell that returns the gradients of queries, not yet scaled by 1/√K, keys and values from
    those of the scores (B, G, R·T, S)."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.product, self.across = ops.BatchMatMul(), ops.BatchMatMul(transpose_a=True)

    def construct(self, slopes, weights, flow, q, k):
        """Return the gradients of queries (B, G, R·T, K), keys and values (B, G, S, K), from the
        gradients of the scores ``slopes`` and of the outputs ``flow``."""
        return self.product(slopes, k), self.across(slopes, q), self.across(weights, flow)
