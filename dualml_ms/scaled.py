"""The cells of a training whose loss is scaled: gradients of the scaled loss, and the update that
is made only where all of them are finite. The scale itself is `dualml.precision.Scaler`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import nn, ops
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

from dualml_ms.compiled import Compiled


class Scaled(nn.Cell):
    """A loss times a factor, which is what is differentiated, and the loss."""

    def __init__(self, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.loss = loss

    def construct(self, factor, *given):
        loss = self.loss(*given)
        return loss * factor, loss


class ScaledGradient(nn.Cell):
    """Loss, and the gradients of the loss times a factor; nothing is changed."""

    def __init__(self, loss: nn.Cell, parameters: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.gradient = ops.value_and_grad(Scaled(loss), None, parameters, has_aux=True)

    def construct(self, factor, *given):
        (_, loss), gradients = self.gradient(factor, *given)
        return loss, gradients


class ScaledSums(nn.Cell):
    """A chunk's gradients of the loss times a factor: put into the sums, or added to them; the
    chunk's own mean loss."""

    def __init__(
        self,
        loss: nn.Cell,
        parameters: ms.ParameterTuple,
        sums: ms.ParameterTuple,
        put: ops.Primitive,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.sums, self.gradient, self.put = sums, ScaledGradient(loss, parameters), put

    def construct(self, factor, *given):
        loss, gradients = self.gradient(factor, *given)
        for i in range(len(self.sums)):
            loss = ops.depend(loss, self.put(self.sums[i], gradients[i]))
        return loss


class AllFinite(nn.Cell):
    """Whether all numbers of what is kept, and of what is given, are finite."""

    def __init__(self, *kept: ms.Parameter) -> None:
        super().__init__(auto_prefix=False)
        self.kept = ms.ParameterTuple(kept)

    def construct(self, *given):
        finite = ms.Tensor(True)
        for x in (*self.kept, *given):
            finite = ops.logical_and(finite, ops.isfinite(x).all())
        return finite


class Unscaling(nn.Cell):
    """An optimizer on gradients times ``inverse``.

    Whether it is called is decided outside of the graph: measured on a CPU, in a branch inside of
    one the kernels that update a parameter and its state in one pass left a state as it was that
    ``set_data`` had replaced before.
    """

    def __init__(self, optimizer: nn.Optimizer) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer

    def construct(self, inverse, gradients):
        own = ()
        for g in gradients:
            own += (g * inverse,)
        return self.optimizer(own)


class UpdateFrom(nn.Cell):
    """`Unscaling` with what is kept in sums."""

    def __init__(self, optimizer: nn.Optimizer, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = Unscaling(optimizer), sums

    def construct(self, inverse):
        return self.optimizer(inverse, self.sums)


class ScaledUpdate:
    """Whole updates of a training with a scaled loss."""

    def __init__(
        self, loss: nn.Cell, parameters: ms.ParameterTuple, optimizer: nn.Optimizer
    ) -> None:
        sums = parameters.clone(prefix="scaled", init="zeros")
        cells = (ScaledSums(loss, parameters, sums, put) for put in (ops.Assign(), ops.AssignAdd()))
        self.first, self.more = map(Compiled, cells)
        self.finite = Compiled(AllFinite(*sums))
        self.apply = Compiled(UpdateFrom(optimizer, sums))


class Clocked(LearningRateSchedule):
    """The rate of the update that is due, which a skipped one does not put off: the optimizer's own
    count is of the updates made."""

    def __init__(self, rates: Sequence[float]) -> None:
        super().__init__()
        self.rates = ms.Tensor(rates, ms.float32)
        self.due = ms.Parameter(ms.Tensor(0, ms.int32), name="due", requires_grad=False)

    def construct(self, global_step):
        return self.rates[self.due]


class Numbers:
    """Python numbers as tensors, each made once: as numbers they would be compiled into graphs."""

    def __init__(self) -> None:
        self.kept: dict[float, ms.Tensor] = {}

    def __call__(self, value: float) -> Any:
        if value not in self.kept:
            self.kept[value] = ms.Tensor(value, ms.float32)
        return self.kept[value]
