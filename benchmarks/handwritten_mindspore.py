"""LeNet's training loops in plain MindSpore, as an expert and as a course would write them.

Nothing of dualml is imported, so that time and memory of these loops are the framework's alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import nn, ops

BATCH = 64


def lenet() -> nn.SequentialCell:
    return nn.SequentialCell(
        nn.Conv2d(1, 6, 5, pad_mode="pad", padding=2, has_bias=True),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=True),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Dense(400, 120),
        nn.ReLU(),
        nn.Dense(120, 10),
    )


def native(arm: str, lr: float, net: nn.Cell) -> nn.Optimizer:
    make = {"sgd": nn.SGD, "adam": nn.Adam}[arm]
    return make(net.trainable_params(), lr)


class Step(nn.Cell):
    """Forward, backward and update; one graph if the mode is GRAPH_MODE."""

    def __init__(self, arm: str, lr: float) -> None:
        super().__init__()
        self.loss = nn.WithLossCell(lenet(), nn.CrossEntropyLoss())
        self.optimizer = native(arm, lr, self.loss)
        self.gradient = ops.value_and_grad(self.loss, None, self.optimizer.parameters)

    def construct(self, x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
        loss, gradients = self.gradient(x, y)
        return ops.depend(loss, self.optimizer(gradients))


class HandWritten:
    """The loop of an expert: data in memory, no synchronisation per step.

    Args:
        mode: ``ms.GRAPH_MODE`` compiles the step as a whole; ``ms.PYNATIVE_MODE`` runs it
            operator by operator, as most course scripts do.
    """

    def __init__(
        self, x: np.ndarray, y: np.ndarray, arm: str, lr: float, steps: int, mode: int
    ) -> None:
        self.x, self.y, self.steps, self.mode = x, y.astype(np.int32), steps, mode
        self.step = Step(arm, lr)
        self.draw = np.random.default_rng(0)
        self.order, self.at = self.draw.permutation(len(y)), 0

    def __call__(self) -> float:
        with execution_mode(self.mode):
            begin = time.perf_counter()
            losses = []
            for _ in range(self.steps):
                if self.at + BATCH > len(self.order):
                    self.order, self.at = self.draw.permutation(len(self.y)), 0
                batch = self.order[self.at : self.at + BATCH]
                self.at += BATCH
                x = ms.Tensor.from_numpy(self.x[batch])
                losses.append(self.step(x, ms.Tensor.from_numpy(self.y[batch])))
            for loss in losses:
                loss.asnumpy()
            return (time.perf_counter() - begin) * 1e3 / self.steps


@contextmanager
def execution_mode(mode: int) -> Iterator[None]:
    """Set the execution mode for one block. PyNative is synchronous here: its queue only makes
    threads spin."""
    ms.set_context(mode=mode, pynative_synchronize=mode == ms.PYNATIVE_MODE)
    try:
        yield
    finally:
        ms.set_context(mode=ms.GRAPH_MODE, pynative_synchronize=False)


class Clock(ms.train.Callback):
    """Measures the seconds from the end of the first step to the end of the last, without
    start-up."""

    def __init__(self) -> None:
        self.first = self.last = 0.0
        self.steps = 0

    def on_train_begin(self, run_context: Any) -> None:
        self.first, self.steps = 0.0, 0

    def on_train_step_end(self, run_context: Any) -> None:
        run_context.original_args().net_outputs.asnumpy()  # the loss, as `LossMonitor` reads it
        self.last = time.perf_counter()
        if self.first:
            self.steps += 1
        else:
            self.first = self.last


class ModelTrain:
    """`mindspore.train.Model.train` over a `NumpySlicesDataset`, as in the tutorials."""

    def __init__(self, x: np.ndarray, y: np.ndarray, arm: str, lr: float, steps: int) -> None:
        samples = ds.NumpySlicesDataset((x, y.astype(np.int32)), ["x", "y"], shuffle=True)
        self.batches = samples.batch(BATCH).take(steps + 1)
        net = lenet()
        self.model = ms.train.Model(net, nn.CrossEntropyLoss(), native(arm, lr, net))
        self.clock = Clock()

    def __call__(self) -> float:
        self.model.train(1, self.batches, callbacks=[self.clock], dataset_sink_mode=False)
        return (self.clock.last - self.clock.first) * 1e3 / self.clock.steps
