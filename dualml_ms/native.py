"""MindSpore's own data parallel training: its reducer, compiled with the gradient in its mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.backend import chunks
from dualml.communicator import Communicator
from dualml.errors import Unsupported
from dualml_ms.aggregation import Array, MindSporePieces

if TYPE_CHECKING:
    from dualml_ms.training import LossCell, MindSporeTraining


class Scaled(nn.Cell):
    """A loss times a factor, which is what is differentiated, and the loss."""

    def __init__(self, loss: LossCell) -> None:
        super().__init__(auto_prefix=False)
        self.loss = loss

    def construct(self, x, y, factor):
        loss = self.loss(x, y)
        return loss * factor, loss


class ReducedGradient(nn.Cell):
    """As `nn.TrainOneStepCell` up to its optimizer: the gradients summed over the ranks.

    Whatever is given besides is added to this rank's before.
    """

    def __init__(self, loss: LossCell, parameters: ms.ParameterTuple, comm: Communicator) -> None:
        super().__init__(auto_prefix=False)
        self.gradient = ops.value_and_grad(Scaled(loss), None, parameters, has_aux=True)
        self.reducer = nn.DistributedGradReducer(
            parameters, mean=False, degree=comm.size, group=comm.group
        )

    def construct(self, x, y, factor, *before):
        (_, loss), own = self.gradient(x, y, factor)
        found = ()
        for i in range(len(own)):
            found += (own[i] + before[i].reshape(own[i].shape) if before else own[i],)
        flat = ()
        for gradient in self.reducer(found):
            flat += (gradient.reshape(-1),)
        return loss, flat


class Update(nn.Cell):
    """The optimizer on one flat gradient for each parameter."""

    def __init__(self, optimizer: nn.Optimizer) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer
        self.shapes = tuple(tuple(p.shape) for p in optimizer.parameters)

    def construct(self, *flat):
        gradients = ()
        for i in range(len(flat)):
            gradients += (flat[i].reshape(self.shapes[i]),)
        return self.optimizer(gradients)


class MindSporeNative(MindSporePieces):
    """`nn.DistributedGradReducer`; see `dualml.aggregation.pieces.Summing`.

    It reduces every parameter by itself, so every parameter is a bucket here. The ranks match
    these messages by their order in the graph: a rank with several chunks adds up all but the last
    before, and one without samples takes the gradient of one, times zero, so that all of them
    reduce inside the same step.

    Raises:
        Unsupported: a rank that is alone.
    """

    detail = "mindspore.nn.DistributedGradReducer in DATA_PARALLEL mode"

    def __init__(self, training: MindSporeTraining, comm: Communicator) -> None:
        if getattr(comm, "group", None) is None:
            raise Unsupported(f"{self.detail} needs a group; this rank is alone")
        super().__init__(training, [[name] for name in training.parameters])
        self.comm = comm
        parameters = ms.ParameterTuple(training.parameters.values())
        with data_parallel(comm):
            self._reduced = ReducedGradient(training.mean, parameters, comm)
        self._update = Update(training.optimizer)
        self.compiled: set[tuple[int, bool]] = set()

    def gradient(
        self, batch: Array, factor: float
    ) -> tuple[list[tuple[ms.Tensor, float]] | None, list[ms.Tensor]]:
        if not len(batch):
            return None, self._sum(np.zeros(1, np.int64), 0.0, [])[1]
        *before, (last, share) = chunks(batch, self.training.chunk)
        losses, total = [], []
        for part, portion in before:
            loss, flat = self._gradient(*self.training.tensors(part), self.factor(portion * factor))
            losses.append((loss, portion))
            total = [ops.add(a, b) for a, b in zip(total, flat, strict=True)] if total else flat
        loss, summed = self._sum(last, share * factor, total)
        return [*losses, (loss, share)], summed

    def settle(self, gradients: Sequence[ms.Tensor]) -> list[ms.Tensor]:
        """They are the sum when the step returns."""
        return list(gradients)

    def _sum(
        self, part: Array, factor: float, before: Sequence[ms.Tensor]
    ) -> tuple[ms.Tensor, list[ms.Tensor]]:
        """The reduced step; the mode counts while it is compiled for another length."""
        key = len(part), bool(before)
        with nullcontext() if key in self.compiled else data_parallel(self.comm):
            loss, flat = self._reduced(*self.training.tensors(part), self.factor(factor), *before)
        self.compiled.add(key)
        return loss, list(flat)


@contextmanager
def data_parallel(comm: Communicator) -> Iterator[None]:
    """MindSpore's mode of that name, for what is made and compiled inside.

    In a cluster joined by a store it knows neither the number of ranks nor its own: they are told.
    """
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL,
        gradients_mean=False,
        device_num=comm.place.size,
        global_rank=comm.place.rank,
    )
    try:
        yield
    finally:
        ms.reset_auto_parallel_context()
