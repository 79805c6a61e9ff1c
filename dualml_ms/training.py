"""A trial's model, optimizer and data in MindSpore: the compiled whole step, traces and
evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.backend import (
    Array,
    Arrays,
    Carrying,
    Memory,
    Mixed,
    Observable,
    Recipe,
    Recomputing,
    Trace,
    Training,
    Weighable,
    at_once,
    batch_digest,
    chunks,
)
from dualml.communicator import How
from dualml.errors import Unsupported
from dualml.model.streams import beside
from dualml_ms.compiled import Compiled
from dualml_ms.memory import nbytes, state_bytes
from dualml_ms.model import LOSSES, Network
from dualml_ms.model.network import Look
from dualml_ms.optim import load_state, optimizer, state
from dualml_ms.scaled import Clocked, Numbers, ScaledGradient, ScaledUpdate


class LossCell(nn.Cell):
    """A cell that returns the mean loss of the network over a batch."""

    def __init__(self, network: Network, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, loss

    def construct(self, x, y, *masks):
        return self.loss(self.network(x, *masks), y)


class EndingLoss(LossCell):
    """A cell that returns the mean loss, and the final states of stateful layers."""

    def construct(self, x, y, *masks):
        logits, states = self.network.ending(x, *masks)
        return self.loss(logits, y), states


class WholeStep(nn.Cell):
    """A cell with forward pass, backward pass and update compiled as one graph; returns the
    loss."""

    def __init__(self, loss: LossCell, optimizer: nn.Optimizer) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer
        self.loss = loss
        self.gradient = ops.value_and_grad(loss, None, optimizer.parameters)

    def construct(self, x, y, *masks):
        loss, gradients = self.gradient(x, y, *masks)
        return ops.depend(loss, self.optimizer(gradients))


class EndingStep(nn.Cell):
    """A whole step like `WholeStep` that returns the loss and the final states of the batch."""

    def __init__(self, loss: EndingLoss, optimizer: nn.Optimizer) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.loss = optimizer, loss
        self.gradient = ops.value_and_grad(loss, None, optimizer.parameters, has_aux=True)

    def construct(self, x, y, *masks):
        (loss, states), gradients = self.gradient(x, y, *masks)
        return (ops.depend(loss, self.optimizer(gradients)), *states)


class Gradient(nn.Cell):
    """A cell that returns loss and gradients, without side effects."""

    def __init__(self, loss: LossCell, parameters: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.loss = loss
        self.gradient = ops.value_and_grad(loss, None, parameters)

    def construct(self, x, y, *masks):
        return self.gradient(x, y, *masks)


class Accumulate(nn.Cell):
    """A cell that adds a chunk's share of the mean gradient to the sums; returns the chunk's own
    mean loss."""

    def __init__(
        self, loss: LossCell, parameters: ms.ParameterTuple, sums: ms.ParameterTuple
    ) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums
        self.loss = loss
        self.gradient = ops.value_and_grad(loss, None, parameters)

    def construct(self, share, x, y, *masks):
        loss, gradients = self.gradient(x, y, *masks)
        for i in range(len(self.sums)):
            loss = ops.depend(loss, ops.assign_add(self.sums[i], gradients[i] * share))
        return loss


class Apply(nn.Cell):
    """A cell that makes one update with the accumulated gradient, then sets the sums to zero."""

    def __init__(self, optimizer: nn.Optimizer, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = optimizer, sums

    def construct(self):
        done = self.optimizer(self.sums)
        for i in range(len(self.sums)):
            done = ops.depend(
                done, ops.assign(self.sums[i], ops.depend(ops.zeros_like(self.sums[i]), done))
            )
        return done


class MindSporeTraining(Training, Observable, Mixed, Weighable, Recomputing, Carrying):
    """MindSpore implementation of `dualml.backend.Training`."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.now = recipe, 0
        self.scaler, self.number = recipe.precision.scaler(), Numbers()
        self.hidden = recipe.hidden()
        self.network = Network(recipe.spec, recipe.precision.type, recipe.recompute)
        self.network.load(recipe.weights)
        self.network.set_train()
        self.parameters = self.network.canonical()
        self.statistics = self.network.statistics()
        tuple_ = ms.ParameterTuple(self.parameters.values())
        rates = recipe.rule.lr if recipe.schedule.constant else recipe.rates()
        self.clock: Clocked | None = None
        if self.scaler is not None and not recipe.schedule.constant:
            rates = self.clock = Clocked(rates)
        self.optimizer = optimizer(recipe.rule, list(self.parameters.values()), rates)
        criterion = LOSSES[recipe.loss]()
        mean = self.mean = LossCell(self.network, criterion)
        if self.hidden is not None:
            ending = EndingLoss(self.network, criterion)
            self.whole = Compiled(EndingStep(ending, self.optimizer))
            self.gradient = Compiled(Gradient(mean, tuple_))
        elif self.scaler is None:
            self.whole = Compiled(WholeStep(mean, self.optimizer))
            self.gradient = Compiled(Gradient(mean, tuple_))
        else:
            self.scaled = ScaledUpdate(mean, tuple_, self.optimizer)
            self.gradient = Compiled(ScaledGradient(mean, tuple_))
        self.layers = Compiled(Look(self.network, criterion))
        self._accumulators = lambda: self._make_accumulators(mean, tuple_)
        self.accumulate: Compiled | None = None
        self.x, self.y = self.inputs(recipe.x), recipe.y.astype(np.int32)

    def _make_accumulators(self, mean: LossCell, parameters: ms.ParameterTuple) -> None:
        """Make the cells for chunks at the first batch above the chunk size, because they need a
        copy of the parameters."""
        sums = parameters.clone(prefix="accumulated", init="zeros")
        self.accumulate = Compiled(Accumulate(mean, parameters, sums))
        self.apply = Compiled(Apply(self.optimizer, sums))

    def inputs(self, x: Array) -> Array:
        """Return tokens as int32, which MindSpore's lookup needs, and images unchanged."""
        return x.astype(np.int32) if self.recipe.spec.tokens else x

    def tensors(self, batch: Array) -> list[ms.Tensor]:
        """Return samples, labels, and further inputs of the network for them in the next update.

        `from_numpy` shares memory with the fresh arrays: there is no second copy.
        """
        spec, seed = self.recipe.spec, self.recipe.seed
        drawn = beside(spec, seed, self.now + 1, batch, self.hidden).values()
        return [ms.Tensor.from_numpy(a) for a in (self.x[batch], self.y[batch], *drawn)]

    @property
    def held(self) -> How:
        return self.network.lower.how

    def step(self, batch: Array, step: int) -> list[tuple[ms.Tensor, float]]:
        if self.hidden is not None:
            losses = self._carried(batch)
        elif self.scaler is not None:
            losses = self._scaled(batch, step)
        elif len(batch) <= self.recipe.chunk:
            losses = [(self.whole(*self.tensors(batch)), 1.0)]
        else:
            losses = self._in_chunks(batch)
        self.now = step
        return losses

    def _carried(self, batch: Array) -> list[tuple[ms.Tensor, float]]:
        """Make the update of a stateful model, whose batch is not split.

        Raises:
            Unsupported: a batch above `TrainingSpec.chunk`, or a scaled loss.
        """
        if len(batch) > self.recipe.chunk or self.scaler is not None:
            raise Unsupported("states are carried over batches that go through at once, in float32")
        loss, *states = self.whole(*self.tensors(batch))
        names = self.hidden.shapes
        ended = {name: s.asnumpy() for name, s in zip(names, states, strict=True)}
        self.hidden.after(batch, ended)
        return [(loss, 1.0)]

    def _scaled(self, batch: Array, step: int) -> list[tuple[ms.Tensor, float]]:
        """Make an update with a scaled loss, chunk by chunk."""
        losses = []
        for part, share in chunks(batch, self.recipe.chunk):
            put = self.scaled.more if losses else self.scaled.first
            losses.append((put(self.number(share * self.scale), *self.tensors(part)), share))
        self.update(step, self.scaled.finite, self.scaled.apply)
        return losses

    def update(
        self,
        step: int,
        finite: Callable[..., ms.Tensor],
        apply: Callable[..., Any],
        *tensors: ms.Tensor,
    ) -> None:
        """Make update ``step`` with the cell ``apply``; with a scaled loss only if ``finite``
        accepts the gradients, and with the inverse scale as first argument."""
        if self.scaler is None:
            apply(*tensors)
            return
        inverse = self.number(1 / self.scale)
        if self.accepts(bool(finite(*tensors).asnumpy())):
            if self.clock is not None:
                self.clock.due.set_data(ms.Tensor(step - 1, ms.int32))
            apply(inverse, *tensors)

    def _in_chunks(self, batch: Array) -> list[tuple[ms.Tensor, float]]:
        """Make an update by accumulating the gradients of chunks."""
        if self.accumulate is None:
            self._accumulators()
        losses = []
        for part, share in chunks(batch, self.recipe.chunk):
            loss = self.accumulate(ms.Tensor(share, ms.float32), *self.tensors(part))
            losses.append((loss, share))
        self.apply()
        return losses

    def memory(self, batch: Array | None = None) -> Memory:
        """Return memory of weights, gradients and state. A gradient has its parameter's size,
        whether in a graph or in the sums of `AccumulateGradients`; activations inside the graph are
        not visible."""
        weights = nbytes(self.parameters.values())
        gradients = weights if self.accumulate is None else nbytes(self.accumulate.cell.sums)
        return Memory(weights, gradients, state_bytes(self.optimizer))

    def trace(self, batch: Array, probe: Array) -> Trace:
        loss, gradients = 0.0, {}
        for part, share in chunks(batch, self.recipe.chunk):
            factor = [] if self.scaler is None else [self.number(self.scale)]
            with self.preserving_statistics():
                value, chunk_gradients = self.gradient(*factor, *self.tensors(part))
            loss += share * float(value.asnumpy())
            for name, g in zip(self.parameters, chunk_gradients, strict=True):
                gradients[name] = gradients.get(name, 0) + g.asnumpy() * np.float32(share)
        return Trace(*self.look(batch, probe), loss=loss, gradients=self.unscaled(gradients))

    def look(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        _, _, *outputs = self.looked(self.x[probe], self.y[probe])
        names = [name for name, _ in self.network.spec.layers]
        seen = (value.asnumpy()[: len(probe)] for value in outputs)
        activations = dict(zip(names, seen, strict=True))
        return batch_digest(*self.given(batch)), activations

    def looked(self, x: Array, y: Array) -> tuple[ms.Tensor, ...]:
        """Evaluate `LayerOutputs` for some samples, repeated up to the size of an evaluation: any
        other number would be compiled anew."""
        n = max(len(y), at_once(y))
        filled = (np.resize(a, (n, *a.shape[1:])) for a in (self.inputs(x), y.astype(np.int32)))
        outputs: tuple[ms.Tensor, ...] = self.layers(*map(ms.Tensor.from_numpy, filled))
        return outputs

    def given(self, batch: Array) -> tuple[Array, Array]:
        x, y, *_ = self.tensors(batch)
        return x.asnumpy(), y.asnumpy()

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        losses, predicted, *_ = self.looked(x, y)
        return float(losses.asnumpy()[: y.size].mean(dtype=float)), predicted.asnumpy()[: len(y)]

    def weights(self) -> Arrays:
        both = {**self.parameters, **self.statistics}
        return {name: both[name].asnumpy().copy() for name in self.recipe.spec.tensors()}

    def running_statistics(self) -> Arrays:
        return {name: p.asnumpy().copy() for name, p in self.statistics.items()}

    def load_running_statistics(self, statistics: Mapping[str, Array]) -> None:
        for name, statistic in self.statistics.items():
            statistic.set_data(ms.Tensor(statistics[name], statistic.dtype))

    def state(self) -> dict[str, Arrays]:
        own = state(self.optimizer, list(self.parameters)) | self.scaling()
        return own if self.hidden is None else own | self.hidden.state()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        self.network.load(weights)
        state = self.rescale(state if self.hidden is None else self.hidden.load(state))
        load_state(self.optimizer, state, self.made(step), list(self.parameters))
        self.now = step

    def move(self, by: Callable[[Arrays], Mapping[str, Array]]) -> None:
        self.network.load(by(self.weights()))
