"""Attention to keys and values block by block in MindSpore; see `dualml.split.ring`.

What a block computes are two compiled cells. Heads are laid out and blocks merged in NumPy, whose
arrays are the tensors' memory: on a CPU, MindSpore's transpositions, reductions along the last axis
and products with a number take longer than the products of matrices beside them (2 million scores:
softmax 5 ms, their largest 30 ms, over a number 31 ms).

Shapes: B batch, T positions of the queries and S of a block, G groups of R heads, K entries.
"""

from __future__ import annotations

import math

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.backend import Array
from dualml.backend.stage import Block, seen
from dualml.model.decoder import GroupedAttention
from dualml.reference.ring import NumpyBlockAttention
from dualml_ms.compiled import Compiled


class MindSporeBlockAttention:
    """See `dualml.backend.stage.BlockAttention`; its layout of heads is the referee's."""

    def __init__(self, layer: GroupedAttention, places: Array) -> None:
        self.layout, self.scale = NumpyBlockAttention(layer, places), 1 / math.sqrt(layer.width)
        self.first, self.own_back = Compiled(Attend(masked=True)), Compiled(Back(masked=True))
        self.more, self.other_back = Compiled(Attend(masked=False)), Compiled(Back(masked=False))
        self.masks: dict[tuple[int, ...], ms.Tensor] = {}

    def split(self, x: ms.Tensor) -> tuple[ms.Tensor, ms.Tensor]:
        q, kv = self.layout.split(x.asnumpy())
        return tensor(q), tensor(kv)

    def attend(
        self, q: ms.Tensor, kv: ms.Tensor, block: Block, state: tuple[ms.Tensor, ms.Tensor] | None
    ) -> tuple[ms.Tensor, ms.Tensor]:
        queries, keys = seen(block, q.shape[-2])
        own, (k, v) = q.asnumpy()[..., queries, :], kv.asnumpy()[..., keys, :]
        ones = np.ones((*v.shape[:-1], 1), np.float32)
        given = [tensor(flat(own) * self.scale), tensor(k), tensor(np.concatenate((v, ones), -1))]
        found = self.first(*given, self.mask(own.shape)) if state is None else self.more(*given)
        sums_of, shift = (one.asnumpy() for one in found)
        y = (sums_of[..., :-1] / sums_of[..., -1:]).reshape(own.shape)
        lse = (shift + np.log(sums_of[..., -1:])).reshape(own.shape[:-1])
        if state is None:
            return tensor(y), tensor(lse)
        whole, sums_so_far = (one.asnumpy() for one in state)
        before = sums_so_far[..., queries]
        after = np.logaddexp(before, lse)
        old, new = (np.exp(one - after)[..., None] for one in (before, lse))
        whole[..., queries, :] = old * whole[..., queries, :] + new * y
        sums_so_far[..., queries] = after
        return tensor(whole), tensor(sums_so_far)

    def mask(self, shape: tuple[int, ...]) -> ms.Tensor:
        """What is added to scores of one's own block, in full: MindSpore is slow to repeat it."""
        b, groups, r, length, _ = shape
        if shape not in self.masks:
            later = np.triu(np.full((length, length), -1e30, np.float32), 1)
            self.masks[shape] = tensor(np.tile(later, (b, groups, r, 1)))
        return self.masks[shape]

    def joined(self, y: ms.Tensor) -> ms.Tensor:
        return tensor(self.layout.joined(y.asnumpy()))

    def heads(self, y: ms.Tensor) -> ms.Tensor:
        return tensor(self.layout.heads(y.asnumpy()))

    def back(
        self,
        q: ms.Tensor,
        kv: ms.Tensor,
        block: Block,
        flow: ms.Tensor,
        y: ms.Tensor,
        lse: ms.Tensor,
    ) -> tuple[ms.Tensor, ms.Tensor]:
        """What is subtracted of every row of scores, and of their gradients, is one column more of
        the products that make them."""
        queries, keys = seen(block, q.shape[-2])
        own, flow, y = (one.asnumpy()[..., queries, :] for one in (q, flow, y))
        along = np.einsum("...k,...k->...", flow, y)[..., None]
        left = [(own * self.scale, lse.asnumpy()[..., queries, None]), (flow, along)]
        right = kv.asnumpy()[..., keys, :]
        given = [tensor(flat(np.concatenate(pair, -1))) for pair in left]
        less = np.full((*right.shape[1:-1], 1), -1, np.float32)
        given += [tensor(np.concatenate((one, less), -1)) for one in right]
        own_block = block == "own"
        found = (
            self.own_back(*given, self.mask(own.shape)) if own_block else self.other_back(*given)
        )
        dq, dk, dv = (one.asnumpy()[..., :-1] for one in found)
        all_q, all_kv = np.zeros(q.shape, np.float32), np.zeros(kv.shape, np.float32)
        all_q[..., queries, :] = (dq * self.scale).reshape(own.shape)
        all_kv[0][..., keys, :], all_kv[1][..., keys, :] = dk, dv
        return tensor(all_q), tensor(all_kv)

    def whole(self, dq: ms.Tensor, dkv: ms.Tensor) -> ms.Tensor:
        return tensor(self.layout.whole(dq.asnumpy(), dkv.asnumpy()))


def tensor(array: Array) -> ms.Tensor:
    """Of float32, in the same memory where it can."""
    return ms.Tensor.from_numpy(np.ascontiguousarray(array, np.float32))


def flat(x: Array) -> Array:
    """B G RT K: the heads of a group see the same keys, their queries are one long sequence."""
    return x.reshape(*x.shape[:2], -1, x.shape[-1])


class Attend(nn.Cell):
    """Sums of values and of exponentials (B G RT K+1), and what was subtracted in these (B G RT 1),
    of scaled queries (B G RT K), keys (B G S K), values and a column of ones (B G S K+1), and what
    is added to the scores, if they are ``masked``.

    A score less its softmax's logarithm is that of the row's sum: of the first, which all queries
    see. MindSpore's has errors of 5e-6, hence the sum once more, of what is added up.
    """

    def __init__(self, *, masked: bool) -> None:
        super().__init__(auto_prefix=False)
        self.masked, self.product = masked, ops.BatchMatMul(transpose_b=True)
        self.log_softmax, self.weigh = ops.LogSoftmax(-1), ops.BatchMatMul()

    def construct(self, q, k, v, *mask):
        scores = self.product(q, k)
        if self.masked:
            scores = scores + mask[0]
        logs = self.log_softmax(scores)
        return self.weigh(ops.exp(logs), v), scores[..., :1] - logs[..., :1]


class Back(nn.Cell):
    """Gradients of the first and third arguments' K columns, and of the values: see
    `MindSporeBlockAttention.back`; what they have in column K means nothing."""

    def __init__(self, *, masked: bool) -> None:
        super().__init__(auto_prefix=False)
        self.masked, self.product = masked, ops.BatchMatMul(transpose_b=True)
        self.weigh, self.across = ops.BatchMatMul(), ops.BatchMatMul(transpose_a=True)

    def construct(self, q, flow, k, v, *mask):
        logs = self.product(q, k)
        if self.masked:
            logs = logs + mask[0]
        weights = ops.exp(logs)
        d_scores = weights * self.product(flow, v)
        return self.weigh(d_scores, k), self.across(d_scores, q), self.across(weights, flow)
