"""Attention to keys and values block by block in float64 NumPy; see `dualml.parallel.split.ring`.

Shapes: B batch, T positions of the queries and S of a block, G groups of R heads, K entries per
head.
"""

from __future__ import annotations

import numpy as np

from dualml.algorithms.model.decoder import GroupedAttention
from dualml.backend.reference.decoder import apply_rotary
from dualml.backend.reference.types import Array
from dualml.backend.stage import Block, visible_slices


class NumpyBlockAttention:
    """Float64 NumPy implementation of `dualml.backend.stage.BlockAttention`."""

    def __init__(self, layer: GroupedAttention, places: Array) -> None:
        self.layer, self.places = layer, places

    def split_qkv(self, x: Array) -> tuple[Array, Array]:
        """Return queries (B, G, R, T, K), and keys and values (2, B, G, T, K)."""
        layer, (b, length, _) = self.layer, x.shape
        parts = x.reshape(b, length, layer.kv_heads, layer.heads_per_group + 2, layer.width)
        parts = parts.transpose(0, 2, 3, 1, 4)
        if layer.base:
            parts = np.concatenate([self.rotate(parts[:, :, :-1]), parts[:, :, -1:]], axis=2)
        kv = np.stack([parts[:, :, -2], parts[:, :, -1]])
        return parts[:, :, : layer.heads_per_group], kv

    def rotate(self, x: Array, *, back: bool = False) -> Array:
        """Rotate the last axis of queries or keys (…, T, K) by the angles of this rank's positions,
        or by the negative angles if ``back``."""
        return apply_rotary(self.layer, x, inverse=back, positions=self.places)

    def attend(
        self, q: Array, kv: Array, block: Block, state: tuple[Array, Array] | None
    ) -> tuple[Array, Array]:
        """Return the outputs (B, G, R, T, K) and log-sum-exps (B, G, R, T) over this block and
        those before it. ``state``, the result for the earlier blocks, is updated in place; None:
        this is the first block."""
        queries, scores, _, v = self.block_scores(q, kv, block)
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - top)
        sums = weights.sum(axis=-1, keepdims=True)
        y, lse = weights @ v / sums, (top + np.log(sums))[..., 0]
        if state is None:
            return y, lse
        whole, sums_so_far = state
        before = sums_so_far[..., queries]
        after = np.logaddexp(before, lse)
        old, new = (np.exp(one - after)[..., None] for one in (before, lse))
        whole[..., queries, :] = old * whole[..., queries, :] + new * y
        sums_so_far[..., queries] = after
        return whole, sums_so_far

    def block_scores(self, q: Array, kv: Array, block: Block) -> tuple[slice, Array, Array, Array]:
        """Return the slice of queries that see the block, their scores (B, G, R, T, S), and keys
        and values (B, G, 1, S, K)."""
        queries, keys = visible_slices(block, q.shape[-2])
        k, v = kv[:, :, :, None, keys]
        scores = q[..., queries, :] @ k.swapaxes(-1, -2) / np.sqrt(self.layer.width)
        if block == "own":
            scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
        return queries, scores, k, v

    def merge_heads(self, y: Array) -> Array:
        """Merge the heads: (B, G, R, T, K) → (B, T, G·R·K)."""
        b, _, _, length, _ = y.shape
        return y.transpose(0, 3, 1, 2, 4).reshape(b, length, -1)

    def split_heads(self, y: Array) -> Array:
        """Split the last axis into heads: (B, T, G·R·K) → (B, G, R, T, K)."""
        layer, (b, length, _) = self.layer, y.shape
        parts = y.reshape(b, length, layer.kv_heads, layer.heads_per_group, layer.width)
        return parts.transpose(0, 2, 3, 1, 4)

    def backward_block(
        self, q: Array, kv: Array, block: Block, flow: Array, y: Array, lse: Array
    ) -> tuple[Array, Array]:
        """Return the gradients that a block contributes to the queries, (B, G, R, T, K), and to its
        keys and values, (2, B, G, T, K), zero outside of it; a key and a value sum the gradients of
        all heads of their group."""
        queries, scores, k, v = self.block_scores(q, kv, block)
        flow, own, y = (one[..., queries, :] for one in (flow, q, y))
        weights = np.exp(scores - lse[..., queries, None])
        along = (flow * y).sum(axis=-1, keepdims=True)
        d_scores = weights * (flow @ v.swapaxes(-1, -2) - along) / np.sqrt(self.layer.width)
        dq, dkv = np.zeros(q.shape), np.zeros(kv.shape)
        dq[..., queries, :] = d_scores @ k
        keys = visible_slices(block, q.shape[-2])[1]
        dkv[0][..., keys, :] = (d_scores.swapaxes(-1, -2) @ own).sum(axis=2)
        dkv[1][..., keys, :] = (weights.swapaxes(-1, -2) @ flow).sum(axis=2)
        return dq, dkv

    def merge_qkv_gradients(self, dq: Array, dkv: Array) -> Array:
        """Return the gradient (B, T, G·(R + 2)·K) of the input of `split_qkv`, from those of the
        queries (B, G, R, T, K) and of keys and values (2, B, G, T, K). The rotation of queries and
        keys is undone."""
        dk, dv = dkv[:, :, :, None]
        if self.layer.base:
            dq, dk = self.rotate(dq, back=True), self.rotate(dk, back=True)
        return self.merge_heads(np.concatenate([dq, dk, dv], axis=2))
