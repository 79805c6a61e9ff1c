"""Cells of a training with a scaled loss: gradients of the scaled loss, and the update, which is
made only if all of them are finite. `dualml.algorithms.precision.Scaler` controls the scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import nn, ops
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

from dualml_ms.common.compiled import CompiledCell


class ScaledLoss(nn.Cell):
    """A cell that returns a loss times a factor, which is differentiated, and the loss."""

    def __init__(self, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.loss = loss

    def construct(self, factor, *given):
        """Return ``factor`` times the loss of ``given``, which is differentiated, and the loss
        itself."""
        loss = self.loss(*given)
        return loss * factor, loss


class ScaledGradient(nn.Cell):
    """A cell that returns the loss, and the gradients of the loss times a factor, without side
    effects."""

    def __init__(self, loss: nn.Cell, parameters: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.gradient = ops.value_and_grad(ScaledLoss(loss), None, parameters, has_aux=True)

    def construct(self, factor, *given):
        """Return the loss of ``given``, and the gradients of ``factor`` times that loss, one per
        parameter."""
        (_, loss), gradients = self.gradient(factor, *given)
        return loss, gradients


class ScaledSums(nn.Cell):
    """A cell that stores a chunk's gradients of the loss times a factor in ``sums``, by the
    operator ``put`` (``Assign`` or ``AssignAdd``); returns the chunk's own mean loss."""

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
        """Store the gradients of ``factor`` times the loss of ``given`` in the sums, by ``put``;
        return the unscaled mean loss."""
        loss, gradients = self.gradient(factor, *given)
        for i in range(len(self.sums)):
            loss = ops.depend(loss, self.put(self.sums[i], gradients[i]))
        return loss


class AllFinite(nn.Cell):
    """A cell that returns whether its stored parameters ``kept`` and its arguments are all
    finite."""

    def __init__(self, *kept: ms.Parameter) -> None:
        super().__init__(auto_prefix=False)
        self.kept = ms.ParameterTuple(kept)

    def construct(self, *given):
        """Return a boolean scalar tensor: whether all elements of the stored parameters and of
        ``given`` are finite."""
        finite = ms.Tensor(True)
        for x in (*self.kept, *given):
            finite = ops.logical_and(finite, ops.isfinite(x).all())
        return finite


class UnscaledUpdate(nn.Cell):
    """A cell that runs an optimizer on gradients times ``inverse``.

    The decision to call it is made outside of the graph: measured on a CPU, in a branch inside of a
    graph the kernels that update a parameter and its state in one pass ignored a state that
    ``set_data`` had replaced before.
    """

    def __init__(self, optimizer: nn.Optimizer) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer

    def construct(self, inverse, gradients):
        """Multiply the gradients, one per parameter, by ``inverse`` (1 / loss scale) and make one
        update with them; return the optimizer's result."""
        own = ()
        for g in gradients:
            own += (g * inverse,)
        return self.optimizer(own)


class UnscaledUpdateFromSums(nn.Cell):
    """A cell like `UnscaledUpdate` that takes the gradients from the stored parameters ``sums``."""

    def __init__(self, optimizer: nn.Optimizer, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = UnscaledUpdate(optimizer), sums

    def construct(self, inverse):
        """Make one update with the stored sums times ``inverse`` (1 / loss scale)."""
        return self.optimizer(inverse, self.sums)


class ScaledUpdate:
    """The compiled cells of whole updates with a scaled loss.

    Attributes:
        first, more: `ScaledSums` that overwrites the sums with a chunk's gradients, or adds them.
        finite: whether all sums are finite.
        apply: the update with the sums times its argument, the inverse scale.
    """

    def __init__(
        self, loss: nn.Cell, parameters: ms.ParameterTuple, optimizer: nn.Optimizer
    ) -> None:
        sums = parameters.clone(prefix="scaled", init="zeros")
        cells = (ScaledSums(loss, parameters, sums, put) for put in (ops.Assign(), ops.AssignAdd()))
        self.first, self.more = map(CompiledCell, cells)
        self.finite = CompiledCell(AllFinite(*sums))
        self.apply = CompiledCell(UnscaledUpdateFromSums(optimizer, sums))


class DueRateSchedule(LearningRateSchedule):
    """A schedule of one rate per step, which returns that at index ``due``, a parameter that the
    caller sets before each update: it counts skipped updates, the optimizer's own count does
    not."""

    def __init__(self, rates: Sequence[float]) -> None:
        super().__init__()
        self.rates = ms.Tensor(rates, ms.float32)
        self.due = ms.Parameter(ms.Tensor(0, ms.int32), name="due", requires_grad=False)

    def construct(self, global_step):
        """Return the float32 rate at index ``due``; ``global_step``, the optimizer's own count, is
        ignored."""
        return self.rates[self.due]


class ScalarCache:
    """A cache that is called with a Python number and returns a float32 scalar tensor of it; a
    number itself would be compiled into graphs."""

    def __init__(self) -> None:
        self.tensors: dict[float, ms.Tensor] = {}

    def __call__(self, value: float) -> Any:
        if value not in self.tensors:
            self.tensors[value] = ms.Tensor(value, ms.float32)
        return self.tensors[value]
