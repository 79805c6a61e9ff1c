"""MindSpore's own data parallel training: its reducer, compiled with the gradient in its mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.algorithms.communicator import Communicator
from dualml.backend import split_into_chunks
from dualml.common.errors import Unsupported
from dualml_ms.algorithms.loss_scaling import AllFinite, ScaledLoss, UnscaledUpdateFromSums
from dualml_ms.algorithms.memory import nbytes
from dualml_ms.algorithms.training import LossCell, MindSporeTraining
from dualml_ms.parallel.aggregation import Array, MindSporeGradientBuckets


class ReducedGradient(nn.Cell):
    """A cell that computes gradients and sums them over the ranks, like `nn.TrainOneStepCell`
    without its optimizer.

    The sums stay in ``sums``, in the shapes of the parameters, for `UpdateFromSums`: passing or
    flattening them would cost time that users of the framework, who compile both as one, do not
    spend. Further arguments are gradients that are added to this rank's before they are summed.

    Each parameter has its own reducer, which waits for the one after it: ranks match these messages
    by order, and the compiler's order differs between graphs, such as those with and without
    previous sums. The executor sends one after the other anyway.
    """

    def __init__(
        self,
        loss: LossCell,
        parameters: ms.ParameterTuple,
        sums: ms.ParameterTuple,
        comm: Communicator,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.sums, self.given = sums, 2 + len(loss.network.spec.dropout_names)
        self.gradient = ops.value_and_grad(ScaledLoss(loss), None, parameters, has_aux=True)
        reducers = [
            nn.DistributedGradReducer([p], mean=False, degree=comm.size, group=comm.group)
            for p in parameters
        ]
        self.reducers = nn.CellList(reducers)

    def construct(self, factor, *arguments):
        """Set the sums to the sum over the ranks of ``factor`` times the batch's gradients plus
        this rank's earlier gradients; return the batch's mean loss on this rank. All ranks call it.
        Arguments: x, y, masks, then earlier gradients, if any."""
        before = arguments[self.given :]
        (_, loss), own = self.gradient(factor, *arguments[: self.given])
        for k in range(len(own)):
            i = len(own) - 1 - k  # the order in which the backward pass has them
            gradient = own[i] + before[i].reshape(own[i].shape) if before else own[i]
            total = self.reducers[i]((ops.depend(gradient, loss),))[0]
            loss = ops.depend(loss, ops.assign(self.sums[i], total))
        return loss


class UpdateFromSums(nn.Cell):
    """A cell that runs the optimizer on ``sums``, the gradients summed over the ranks."""

    def __init__(self, optimizer: nn.Optimizer, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = optimizer, sums

    def construct(self):
        """Make one update of the parameters with the sums; return the optimizer's result."""
        return self.optimizer(self.sums)


class MindSporeDataParallel(MindSporeGradientBuckets):
    """Gradient buckets that `nn.DistributedGradReducer` sums over the ranks; see
    `dualml.backend.capability.ReducingBuckets`.

    It reduces every parameter separately, so every parameter is a bucket here; only gradients are
    passed in the shapes of the parameters. A rank with several chunks adds up all but the last one
    before; a rank without samples takes the gradient of one sample, times zero.

    Raises:
        Unsupported: a single rank.
    """

    detail = "mindspore.nn.DistributedGradReducer in DATA_PARALLEL mode"

    def __init__(self, training: MindSporeTraining, comm: Communicator) -> None:
        if comm.group is None:
            raise Unsupported(f"{self.detail} needs a group; this rank is alone")
        super().__init__(training, [[name] for name in training.parameters])
        self.comm = comm
        parameters = ms.ParameterTuple(training.parameters.values())
        self.sums = parameters.clone(prefix="sums", init="zeros")
        with data_parallel_mode(comm):
            self._reduced = ReducedGradient(training.mean_loss, parameters, self.sums, comm)
        scaled = training.scaler is not None
        self._finite = AllFinite(*self.sums)
        update = UnscaledUpdateFromSums if scaled else UpdateFromSums
        self._update = update(training.optimizer, self.sums)
        self.compiled: set[tuple[int, bool]] = set()

    def gradient(
        self, batch: Array, factor: float
    ) -> tuple[list[tuple[ms.Tensor, float]] | None, list[ms.Tensor]]:
        """Compute the gradients of the samples ``batch`` and sum them over the ranks, each times
        its own ``factor`` and the loss scale, which `update` divides out again. All ranks call it;
        one with an empty batch adds zeros.

        Returns:
            The lazy mean loss and share of each chunk of this rank, None for an empty batch; and
            the summed gradients, in the parameters' shapes.
        """
        if not len(batch):
            self._reduce(np.zeros(1, np.int64), 0.0, [])
            return None, list(self.sums)
        *before, (last, share) = split_into_chunks(batch, self.training.recipe.chunk)
        losses, total = [], []
        for part, portion in before:
            scale, given = self.gradient_factor(portion * factor), self.training.batch_tensors(part)
            loss, flat = self._gradient(scale, *given)
            losses.append((loss, portion))
            total = [ops.add(a, b) for a, b in zip(total, flat, strict=True)] if total else flat
        losses.append((self._reduce(last, share * factor, total), share))
        return losses, list(self.sums)

    def bucket_bytes(self) -> int:
        """Return the bytes of the gradient sums."""
        return nbytes(self.sums)

    def wait_reduction(self, gradients: Sequence[ms.Tensor]) -> list[ms.Tensor]:
        """Return the gradients as they are: `gradient` has already summed them over the ranks."""
        return list(gradients)

    def update(self, gradients: Sequence[ms.Tensor], step: int) -> None:
        """Make update ``step`` with the sums divided by the loss scale; a loss scaler skips it if
        one is not finite. ``gradients`` other than the sums themselves are first copied into
        them."""
        for own, gradient in zip(self.sums, gradients, strict=True):
            if gradient is not own:
                ops.assign(own, gradient.reshape(own.shape))
        self.training.update(step, self._finite, self._update)
        self.training.step_count = step

    def _reduce(self, part: Array, factor: float, before: Sequence[ms.Tensor]) -> ms.Tensor:
        """Compute a chunk's gradients times ``factor``, add the gradients ``before`` (of earlier
        chunks), sum the result over the ranks into `sums`, and return the chunk's lazy mean loss.
        The parallel mode only matters for compilation, for every new batch length."""
        key = len(part), bool(before)
        with nullcontext() if key in self.compiled else data_parallel_mode(self.comm):
            loss: ms.Tensor = self._reduced(
                self.gradient_factor(factor), *self.training.batch_tensors(part), *before
            )
        self.compiled.add(key)
        return loss


@contextmanager
def data_parallel_mode(comm: Communicator) -> Iterator[None]:
    """Set MindSpore's data parallel mode for cells that are made and compiled inside the block, and
    reset it afterwards.

    In a cluster joined by a store MindSpore does not know the number of ranks or its own, so both
    are passed.
    """
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL,
        gradients_mean=False,
        device_num=comm.context.size,
        global_rank=comm.context.rank,
    )
    try:
        yield
    finally:
        ms.reset_auto_parallel_context()
