"""Time collectives in MindSpore on one rank; started by communication.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops
from ranks import paced

from dualml.algorithms.model import model
from dualml.interface.bench.timing import Times, time_interleaved
from dualml.parallel.aggregation import strategy


class EachParameter(nn.Cell):
    """One ``ops.AllReduce`` for every tensor, compiled, like `nn.DistributedGradReducer`."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self.reduce = ops.AllReduce(ops.ReduceOp.SUM, group)

    def construct(self, *gradients):
        found = ()
        for gradient in gradients:
            found += (self.reduce(gradient),)
        return found


def models(comm: Any, argument: dict[str, Any]) -> dict[str, Times]:
    """Return model → times to sum its gradients over the ranks, and to copy them."""
    ms.set_context(mode=ms.GRAPH_MODE)
    reduce, ring = strategy("all_reduce"), strategy("ring")
    found = {}
    for name in ("lenet", "mlp"):
        shapes = list(model(name).parameters().values())
        tensors = [ms.Tensor.from_numpy(np.zeros(shape, np.float32)) for shape in shapes]
        memory, other = np.zeros((2, sum(map(math.prod, shapes))), np.float32)
        memory.fill(0)
        flat = ms.Tensor.from_numpy(memory)
        each, once = EachParameter(comm.group), EachParameter(comm.group)

        def compiled(cell: nn.Cell, given: list[ms.Tensor]) -> Callable[[], Any]:
            return lambda: cell(*given)[-1].asnumpy()  # waits for the last

        calls: dict[str, Callable[[], Any]] = {
            "ours": lambda flat=flat: reduce.sum(comm, flat),
            "each": compiled(each, tensors),
            "once": compiled(once, [flat]),
            "ring": lambda flat=flat: ring.sum(comm, flat),
            "copy": lambda memory=memory, other=other: np.copyto(other, memory),
        }
        rounds = {n: paced(comm, call, argument["repeats"]) for n, call in calls.items()}
        found[name] = time_interleaved(rounds, argument["rounds"])
    return found
