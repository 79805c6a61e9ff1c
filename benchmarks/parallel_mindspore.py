"""Data-parallel training in MindSpore, dualml's and by hand; parallel.py starts it on each rank."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
from handwritten_mindspore import lenet
from mindspore import nn, ops
from ourparallel import BATCH, LR, STEPS, Order, OurParallel, samples
from ranks import paced

from dualml.interface.bench.timing import Times, time_interleaved


class EachStep(nn.Cell):
    """Forward, backward, one ``ops.AllReduce`` per gradient and the update, as one graph."""

    def __init__(self, comm: Any) -> None:
        super().__init__()
        self.loss = nn.WithLossCell(lenet(), nn.CrossEntropyLoss())
        self.optimizer = nn.SGD(self.loss.trainable_params(), LR)
        self.gradient = ops.value_and_grad(self.loss, None, self.optimizer.parameters)
        self.reduce = ops.AllReduce(ops.ReduceOp.SUM, comm.group)
        self.share = 1 / comm.size

    def combine(self, gradients: Any) -> Any:
        found = ()
        for gradient in gradients:
            found += (self.reduce(gradient) * self.share,)
        return found

    def construct(self, x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
        loss, gradients = self.gradient(x, y)
        return ops.depend(loss, self.optimizer(self.combine(gradients)))


class FlatStep(EachStep):
    """Forward, backward and update as one graph, with all gradients in one ``ops.AllReduce``."""

    def __init__(self, comm: Any) -> None:
        super().__init__(comm)
        self.shapes = tuple(tuple(p.shape) for p in self.optimizer.parameters)
        ends = np.cumsum([math.prod(shape) for shape in self.shapes]).tolist()
        self.spans = tuple(zip([0, *ends[:-1]], ends, strict=True))

    def combine(self, gradients: Any) -> Any:
        parts = ()
        for gradient in gradients:
            parts += (gradient.reshape(-1),)
        flat = self.reduce(ops.cat(parts)) * self.share
        found = ()
        for i, (start, stop) in enumerate(self.spans):
            found += (flat[start:stop].reshape(self.shapes[i]),)
        return found


class NativeStep(EachStep):
    """MindSpore's own data parallel mode: its reducer between gradient and update, as one graph."""

    def __init__(self, comm: Any) -> None:
        super().__init__(comm)
        self.reducer = nn.DistributedGradReducer(self.optimizer.parameters)

    def combine(self, gradients: Any) -> Any:
        return self.reducer(gradients)


class HandWritten:
    """The loop of an expert around such a cell: data in memory, losses read at the end."""

    def __init__(self, comm: Any, x: np.ndarray, y: np.ndarray, step: nn.Cell) -> None:
        self.x, self.y, self.step = x, y.astype(np.int32), step
        self.next = Order(len(y))
        self.mine = slice(comm.rank * BATCH // comm.size, (comm.rank + 1) * BATCH // comm.size)

    def __call__(self) -> None:
        losses = []
        for _ in range(STEPS):
            batch = self.next()[self.mine]
            x = ms.Tensor.from_numpy(self.x[batch])
            losses.append(self.step(x, ms.Tensor.from_numpy(self.y[batch])))
        for loss in losses:
            loss.asnumpy()


@contextmanager
def data_parallel(comm: Any) -> Iterator[None]:
    """Set MindSpore's parallel mode ``data_parallel`` for one block."""
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL,
        gradients_mean=True,
        device_num=comm.size,
        global_rank=comm.rank,
    )
    try:
        yield
    finally:
        ms.reset_auto_parallel_context()


def train(comm: Any, argument: dict[str, Any]) -> Times:
    """Return the milliseconds of an update, by variant."""
    x, y = samples()
    ms.set_context(mode=ms.GRAPH_MODE)
    calls = {
        "ours": OurParallel(comm, x, y),
        "each": HandWritten(comm, x, y, EachStep(comm)),
        "flat": HandWritten(comm, x, y, FlatStep(comm)),
    }
    with data_parallel(comm):  # what is made and compiled inside is of that mode
        native = calls["native"] = HandWritten(comm, x, y, NativeStep(comm))
        native()
    times = time_interleaved(
        {n: paced(comm, call) for n, call in calls.items()}, argument["rounds"]
    )
    return {name: [t / STEPS for t in found] for name, found in times.items()}
