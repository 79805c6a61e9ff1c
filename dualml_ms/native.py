"""MindSpore's own data parallel training: its reducer, compiled with the gradient in its mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.backend import chunks
from dualml.communicator import Communicator
from dualml.errors import Unsupported
from dualml_ms.aggregation import Array, MindSporePieces
from dualml_ms.memory import nbytes
from dualml_ms.scaled import AllFinite, Scaled, UpdateFrom
from dualml_ms.training import LossCell, MindSporeTraining


class ReducedGradient(nn.Cell):
    """As `nn.TrainOneStepCell` up to its optimizer: the gradients, summed over the ranks.

    They stay in ``sums``, in the shapes of the parameters, for `Update`: handed out and in again,
    or made flat, they cost time that the framework's own users, who compile both as one, do not
    pay. Whatever is given besides is added to this rank's gradients before.

    Each has a reducer of its own, that waits for the one behind it: ranks match these messages by
    their order, and the compiler's differs between graphs, such as those with and without sums from
    before. The executor sends one after the other anyway.
    """

    def __init__(
        self,
        loss: LossCell,
        parameters: ms.ParameterTuple,
        sums: ms.ParameterTuple,
        comm: Communicator,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.sums, self.given = sums, 2 + len(loss.network.spec.dropouts)
        self.gradient = ops.value_and_grad(Scaled(loss), None, parameters, has_aux=True)
        reducers = [
            nn.DistributedGradReducer([p], mean=False, degree=comm.size, group=comm.group)
            for p in parameters
        ]
        self.reducers = nn.CellList(reducers)

    def construct(self, factor, *arguments):
        before = arguments[self.given :]
        (_, loss), own = self.gradient(factor, *arguments[: self.given])
        for k in range(len(own)):
            i = len(own) - 1 - k  # the order in which the backward pass has them
            gradient = own[i] + before[i].reshape(own[i].shape) if before else own[i]
            total = self.reducers[i]((ops.depend(gradient, loss),))[0]
            loss = ops.depend(loss, ops.assign(self.sums[i], total))
        return loss


class Update(nn.Cell):
    """The optimizer on the sums."""

    def __init__(self, optimizer: nn.Optimizer, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = optimizer, sums

    def construct(self):
        return self.optimizer(self.sums)


class MindSporeNative(MindSporePieces):
    """`nn.DistributedGradReducer`; see `dualml.backend.ability.Summing`.

    It reduces every parameter by itself, so every parameter is a bucket here; the gradients, and
    they alone, are handed out in the shapes of the parameters. A rank with several chunks adds up
    all but the last before; one without samples takes the gradient of one, times zero.

    Raises:
        Unsupported: a rank that is alone.
    """

    detail = "mindspore.nn.DistributedGradReducer in DATA_PARALLEL mode"

    def __init__(self, training: MindSporeTraining, comm: Communicator) -> None:
        if comm.group is None:
            raise Unsupported(f"{self.detail} needs a group; this rank is alone")
        super().__init__(training, [[name] for name in training.parameters])
        self.comm = comm
        parameters = ms.ParameterTuple(training.parameters.values())
        self.sums = parameters.clone(prefix="sums", init="zeros")
        with data_parallel(comm):
            self._reduced = ReducedGradient(training.mean, parameters, self.sums, comm)
        scaled = training.scaler is not None
        self._finite = AllFinite(*self.sums)
        self._update = (UpdateFrom if scaled else Update)(training.optimizer, self.sums)
        self.compiled: set[tuple[int, bool]] = set()

    def gradient(
        self, batch: Array, factor: float
    ) -> tuple[list[tuple[ms.Tensor, float]] | None, list[ms.Tensor]]:
        if not len(batch):
            self._sum(np.zeros(1, np.int64), 0.0, [])
            return None, list(self.sums)
        *before, (last, share) = chunks(batch, self.training.recipe.chunk)
        losses, total = [], []
        for part, portion in before:
            scale, given = self.factor(portion * factor), self.training.tensors(part)
            loss, flat = self._gradient(scale, *given)
            losses.append((loss, portion))
            total = [ops.add(a, b) for a, b in zip(total, flat, strict=True)] if total else flat
        losses.append((self._sum(last, share * factor, total), share))
        return losses, list(self.sums)

    def held(self) -> int:
        return nbytes(self.sums)

    def settle(self, gradients: Sequence[ms.Tensor]) -> list[ms.Tensor]:
        """They are the sum when the step returns."""
        return list(gradients)

    def update(self, gradients: Sequence[ms.Tensor], step: int) -> None:
        for own, gradient in zip(self.sums, gradients, strict=True):
            if gradient is not own:
                ops.assign(own, gradient.reshape(own.shape))
        self.training.update(step, self._finite, self._update)
        self.training.now = step

    def _sum(self, part: Array, factor: float, before: Sequence[ms.Tensor]) -> ms.Tensor:
        """Reduce; the mode counts when that is compiled, for every new length of a batch."""
        key = len(part), bool(before)
        with nullcontext() if key in self.compiled else data_parallel(self.comm):
            loss: ms.Tensor = self._reduced(
                self.factor(factor), *self.training.tensors(part), *before
            )
        self.compiled.add(key)
        return loss


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
