"""Sequence-sharded attention in MindSpore; attention.py starts it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from ourattention import Case, race

from dualml.interface.bench.timing import Times
from dualml_ms.common.compiled import CompiledCell
from dualml_ms.parallel.ring import MindSporeBlockAttention


class Attended(nn.Cell):
    """Attention of the queries in two chunks of positions to all keys and values up to each chunk's
    end."""

    def __init__(self, layer: Any, places: np.ndarray) -> None:
        super().__init__()
        self.groups, self.each, self.width = layer.kv_heads, layer.heads_per_group, layer.width
        self.root, self.half = math.sqrt(layer.width), len(places) // 2
        self.ends = tuple(int(places[at]) + 1 for at in (self.half - 1, -1))
        chunks = zip(np.split(places, 2), self.ends, strict=True)
        self.seen = tuple(ms.Tensor(own[:, None] >= np.arange(end)) for own, end in chunks)

    def construct(self, q, kv):
        k, v = kv[0].transpose(0, 2, 3, 1), kv[1].swapaxes(1, 2)
        early = self.chunk(q[:, : self.half], k[..., : self.ends[0]], v[:, :, : self.ends[0]], 0)
        late = self.chunk(q[:, self.half :], k[..., : self.ends[1]], v[:, :, : self.ends[1]], 1)
        return ops.cat((early, late), 1)

    def chunk(self, q, k, v, number):
        b, length = q.shape[:2]
        q = q.transpose(0, 2, 3, 1, 4).reshape(b, self.groups, -1, self.width)
        scores = (ops.matmul(q, k) / self.root).reshape(b, self.groups, self.each, length, -1)
        scores = ops.where(self.seen[number], scores, -1e30)
        weights = ops.softmax(scores, -1).reshape(b, self.groups, self.each * length, -1)
        y = ops.matmul(weights, v).reshape(b, self.groups, self.each, length, -1)
        return y.transpose(0, 3, 1, 2, 4).reshape(b, length, -1)


class OutputAndGradients(nn.Cell):
    """The output of attention, and the gradients of queries, keys and values."""

    def __init__(self, attended: Attended) -> None:
        super().__init__()
        self.attended, self.gradient = attended, ops.GradOperation(get_all=True, sens_param=True)

    def construct(self, q, kv, flow):
        return self.attended(q, kv), self.gradient(self.attended)(q, kv, flow)


def other_variants(comm: Any, case: Case) -> dict[str, Callable[[], Any]]:
    """Return the baselines: attention with gathered keys and values, by name."""
    layer = case.layer
    groups, r, width = layer.kv_heads, layer.heads_per_group, layer.width
    order = np.argsort(
        np.concatenate([comm.numpy(p) for p in comm.all_gather(comm.tensor(case.places))])
    )
    both = CompiledCell(OutputAndGradients(Attended(layer, case.places)))
    flow = ms.Tensor(case.flow)

    def collected() -> Any:
        parts = case.x.reshape(*case.x.shape[:2], groups, r + 2, width)
        own = np.ascontiguousarray(parts[..., r:, :].transpose(3, 0, 1, 2, 4))
        every = np.concatenate([p.asnumpy() for p in comm.all_gather(ms.Tensor(own))], 2)
        q = ms.Tensor(np.ascontiguousarray(parts[..., :r, :]))
        _, (dq, d) = both(q, ms.Tensor(np.ascontiguousarray(every[:, :, order])), flow)
        back = np.empty_like(every)
        back[:, :, order] = d.asnumpy()
        runs = np.stack(np.split(back, comm.size, 2)).reshape(-1)
        dkv = comm.reduce_scatter(ms.Tensor(runs)).asnumpy().reshape(own.shape)
        together = np.concatenate([dq.asnumpy(), dkv.transpose(1, 2, 3, 0, 4)], 3)
        return ms.Tensor(together.reshape(case.x.shape))

    return {"collected": collected}


def attend(comm: Any, argument: dict[str, Any]) -> dict[str, Times]:
    """Return the milliseconds of both passes, by shape and variant."""
    return race(
        comm, argument["shapes"], argument["rounds"], MindSporeBlockAttention, other_variants
    )
