"""A trial's model, optimizer and data in MindSpore: the compiled whole step, traces and
evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.algorithms.communicator import Implementation
from dualml.algorithms.model.streams import extra_inputs
from dualml.backend import (
    ActivationCapture,
    ActivationRecomputation,
    Array,
    Arrays,
    BatchTrace,
    MemoryReport,
    MemoryUsage,
    MixedPrecision,
    StateCarryover,
    Training,
    TrainingSpec,
    batch_digest,
    eval_batch_size,
    split_into_chunks,
)
from dualml.common.errors import Unsupported
from dualml_ms.algorithms.loss_scaling import (
    DueRateSchedule,
    ScalarCache,
    ScaledGradient,
    ScaledUpdate,
)
from dualml_ms.algorithms.memory import nbytes, state_bytes
from dualml_ms.algorithms.model import LOSSES, Network
from dualml_ms.algorithms.model.network import LayerOutputs
from dualml_ms.algorithms.optim import load_state, optimizer, state
from dualml_ms.common.compiled import CompiledCell


class LossCell(nn.Cell):
    """A cell that returns the mean loss of the network over a batch."""

    def __init__(self, network: Network, loss: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, loss

    def construct(self, x, y, *masks):
        """Return the scalar mean loss of samples ``x`` and labels ``y``; ``masks`` are the factors
        of the Dropout layers and the initial states of stateful layers, in layer order (none: no
        dropout, zero states)."""
        return self.loss(self.network(x, *masks), y)


class StatefulLoss(LossCell):
    """A cell that returns the mean loss, and the final states of the stateful (recurrent)
    layers."""

    def construct(self, x, y, *masks):
        """Return the scalar mean loss, and a tuple of final states (batch, vectors of the state,
        features), one per stateful layer, in order; ``masks`` contain the initial ones, beside the
        Dropout masks."""
        logits, states = self.network.forward_with_states(x, *masks)
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
        """Make one update with the batch; return its mean loss before the update."""
        loss, gradients = self.gradient(x, y, *masks)
        return ops.depend(loss, self.optimizer(gradients))


class StatefulStep(nn.Cell):
    """A whole step like `WholeStep` that returns the loss and the final states of the batch."""

    def __init__(self, loss: StatefulLoss, optimizer: nn.Optimizer) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.loss = optimizer, loss
        self.gradient = ops.value_and_grad(loss, None, optimizer.parameters, has_aux=True)

    def construct(self, x, y, *masks):
        """Make one update with the batch; return its mean loss before the update, then the final
        state of each stateful layer."""
        (loss, states), gradients = self.gradient(x, y, *masks)
        return (ops.depend(loss, self.optimizer(gradients)), *states)


class LossAndGradients(nn.Cell):
    """A cell that returns loss and gradients, without side effects."""

    def __init__(self, loss: LossCell, parameters: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.loss = loss
        self.gradient = ops.value_and_grad(loss, None, parameters)

    def construct(self, x, y, *masks):
        """Return the mean loss of the batch, and a tuple of its gradients, one per parameter in
        their order."""
        return self.gradient(x, y, *masks)


class AccumulateGradients(nn.Cell):
    """A cell that adds the gradients of a chunk (a part of a batch), times its share of the batch,
    to ``sums``; returns the chunk's own mean loss."""

    def __init__(
        self, loss: LossCell, parameters: ms.ParameterTuple, sums: ms.ParameterTuple
    ) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums
        self.loss = loss
        self.gradient = ops.value_and_grad(loss, None, parameters)

    def construct(self, share, x, y, *masks):
        """Add ``share`` times a chunk's gradients to the sums; return the chunk's mean loss."""
        loss, gradients = self.gradient(x, y, *masks)
        for i in range(len(self.sums)):
            loss = ops.depend(loss, ops.assign_add(self.sums[i], gradients[i] * share))
        return loss


class ApplyAccumulated(nn.Cell):
    """A cell that makes one update with the accumulated gradient, then sets the sums to zero."""

    def __init__(self, optimizer: nn.Optimizer, sums: ms.ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.sums = optimizer, sums

    def construct(self):
        """Make one update with the sums and set them to zero; return a scalar that depends on
        both."""
        done = self.optimizer(self.sums)
        for i in range(len(self.sums)):
            done = ops.depend(
                done, ops.assign(self.sums[i], ops.depend(ops.zeros_like(self.sums[i]), done))
            )
        return done


class MindSporeTraining(
    Training,
    ActivationCapture,
    MixedPrecision,
    MemoryReport,
    ActivationRecomputation,
    StateCarryover,
):
    """MindSpore implementation of `dualml.backend.Training`."""

    def __init__(self, recipe: TrainingSpec) -> None:
        self.recipe, self.step_count = recipe, 0
        self.scaler, self.scalar = recipe.precision.make_scaler(), ScalarCache()
        self.hidden = recipe.make_hidden_states()
        self.network = Network(recipe.spec, recipe.precision.type, recipe.recompute)
        self.network.load(recipe.weights)
        self.network.set_train()
        self.parameters = self.network.canonical()
        self.statistics = self.network.statistics()
        tuple_ = ms.ParameterTuple(self.parameters.values())
        rates = recipe.rule.lr if recipe.schedule.constant else recipe.learning_rates()
        self.clock: DueRateSchedule | None = None
        if self.scaler is not None and not recipe.schedule.constant:
            rates = self.clock = DueRateSchedule(rates)
        self.optimizer = optimizer(recipe.rule, list(self.parameters.values()), rates)
        criterion = LOSSES[recipe.loss]()
        mean = self.mean_loss = LossCell(self.network, criterion)
        if self.hidden is not None:
            ending = StatefulLoss(self.network, criterion)
            self.whole_step = CompiledCell(StatefulStep(ending, self.optimizer))
            self.gradient = CompiledCell(LossAndGradients(mean, tuple_))
        elif self.scaler is None:
            self.whole_step = CompiledCell(WholeStep(mean, self.optimizer))
            self.gradient = CompiledCell(LossAndGradients(mean, tuple_))
        else:
            self.scaled = ScaledUpdate(mean, tuple_, self.optimizer)
            self.gradient = CompiledCell(ScaledGradient(mean, tuple_))
        self.layer_outputs = CompiledCell(LayerOutputs(self.network, criterion))
        self._accumulators = lambda: self._make_accumulators(mean, tuple_)
        self.accumulate: CompiledCell | None = None
        self.x, self.y = self.model_inputs(recipe.x), recipe.y.astype(np.int32)

    def _make_accumulators(self, mean: LossCell, parameters: ms.ParameterTuple) -> None:
        """Make the cells `accumulate` and `apply`, which add up gradients chunk by chunk. Called
        only for the first batch above the chunk size, because they hold a copy of the
        parameters."""
        sums = parameters.clone(prefix="accumulated", init="zeros")
        self.accumulate = CompiledCell(AccumulateGradients(mean, parameters, sums))
        self.apply = CompiledCell(ApplyAccumulated(self.optimizer, sums))

    def model_inputs(self, x: Array) -> Array:
        """Return tokens as int32, which MindSpore's lookup needs, and images unchanged."""
        return x.astype(np.int32) if self.recipe.spec.takes_tokens else x

    def batch_tensors(self, batch: Array) -> list[ms.Tensor]:
        """Return tensors for the samples with the indices ``batch``: samples, labels, then what
        else the network takes in the next update: Dropout masks and initial states, in layer order.

        `from_numpy` shares memory with the fresh arrays: there is no second copy.
        """
        spec, seed = self.recipe.spec, self.recipe.seed
        drawn = extra_inputs(spec, seed, self.step_count + 1, batch, self.hidden).values()
        return [ms.Tensor.from_numpy(a) for a in (self.x[batch], self.y[batch], *drawn)]

    @property
    def precision_policy(self) -> Implementation:
        """Storage and arithmetic of the network's low-precision numbers; not defined for
        float32."""
        return self.network.low_cast.precision_policy

    def step(self, batch: Array, step: int) -> list[tuple[ms.Tensor, float]]:
        """Make update ``step`` (from 1) with the samples of the indices ``batch``; more than
        `TrainingSpec.chunk` of them pass in chunks whose gradients are accumulated. A batch of one
        chunk is one graph, unless the loss is scaled: then the update is left out if a gradient is
        not finite.

        Returns:
            For each chunk its mean loss, a tensor that need not be computed yet, and its share of
            the batch.

        Raises:
            Unsupported: a stateful model with a larger batch or a scaled loss.
        """
        if self.hidden is not None:
            losses = self._step_stateful(batch)
        elif self.scaler is not None:
            losses = self._step_scaled(batch, step)
        elif len(batch) <= self.recipe.chunk:
            losses = [(self.whole_step(*self.batch_tensors(batch)), 1.0)]
        else:
            losses = self._step_in_chunks(batch)
        self.step_count = step
        return losses

    def _step_stateful(self, batch: Array) -> list[tuple[ms.Tensor, float]]:
        """Make the update of a stateful model, whose batch is not split, and store the final
        states; return one pair, the lazy mean loss and its weight 1.

        Raises:
            Unsupported: a batch above `TrainingSpec.chunk`, or a scaled loss.
        """
        if len(batch) > self.recipe.chunk or self.scaler is not None:
            raise Unsupported("states are carried over batches that go through at once, in float32")
        loss, *states = self.whole_step(*self.batch_tensors(batch))
        names = self.hidden.shapes
        ended = {name: s.asnumpy() for name, s in zip(names, states, strict=True)}
        self.hidden.store_final_states(batch, ended)
        return [(loss, 1.0)]

    def _step_scaled(self, batch: Array, step: int) -> list[tuple[ms.Tensor, float]]:
        """Compute the gradients of a scaled loss chunk by chunk and make the update, unless they
        are not finite; return the lazy mean loss and the weight of each chunk."""
        losses = []
        for part, share in split_into_chunks(batch, self.recipe.chunk):
            put = self.scaled.more if losses else self.scaled.first
            losses.append(
                (put(self.scalar(share * self.loss_scale), *self.batch_tensors(part)), share)
            )
        self.update(step, self.scaled.finite, self.scaled.apply)
        return losses

    def update(
        self,
        step: int,
        finite: Callable[..., ms.Tensor],
        apply: Callable[..., Any],
        *tensors: ms.Tensor,
    ) -> None:
        """Make update ``step``: call ``apply(*tensors)``. With a scaled loss, call ``apply(1 /
        scale, *tensors)`` if the boolean tensor ``finite(*tensors)`` is true, else skip the update,
        and adjust the scale."""
        if self.scaler is None:
            apply(*tensors)
            return
        inverse = self.scalar(1 / self.loss_scale)
        if self.should_step(bool(finite(*tensors).asnumpy())):
            if self.clock is not None:
                self.clock.due.set_data(ms.Tensor(step - 1, ms.int32))
            apply(inverse, *tensors)

    def _step_in_chunks(self, batch: Array) -> list[tuple[ms.Tensor, float]]:
        """Make one update with the gradients of chunks, accumulated by their shares; return the
        lazy mean loss and the weight of each chunk."""
        if self.accumulate is None:
            self._accumulators()
        losses = []
        for part, share in split_into_chunks(batch, self.recipe.chunk):
            loss = self.accumulate(ms.Tensor(share, ms.float32), *self.batch_tensors(part))
            losses.append((loss, share))
        self.apply()
        return losses

    def measure_memory(self, batch: Array | None = None) -> MemoryUsage:
        """Return the bytes of weights, gradients and optimizer state; ``batch`` is ignored. A
        gradient has its parameter's size, whether in a graph or in the sums of
        `AccumulateGradients`; activations inside the graph are not visible and not counted."""
        weights = nbytes(self.parameters.values())
        gradients = weights if self.accumulate is None else nbytes(self.accumulate.cell.sums)
        return MemoryUsage(weights, gradients, state_bytes(self.optimizer))

    def trace(self, batch: Array, probe: Array) -> BatchTrace:
        """Return the mean loss and unscaled gradients of the samples with indices ``batch``,
        computed chunk by chunk, and the activations of the samples ``probe``. Nothing is updated;
        the running statistics of batch normalization are restored."""
        loss, gradients = 0.0, {}
        for part, share in split_into_chunks(batch, self.recipe.chunk):
            factor = [] if self.scaler is None else [self.scalar(self.loss_scale)]
            with self.preserving_statistics():
                value, chunk_gradients = self.gradient(*factor, *self.batch_tensors(part))
            loss += share * float(value.asnumpy())
            for name, g in zip(self.parameters, chunk_gradients, strict=True):
                gradients[name] = gradients.get(name, 0) + g.asnumpy() * np.float32(share)
        return BatchTrace(
            *self.capture_forward(batch, probe),
            loss=loss,
            gradients=self.unscale_gradients(gradients),
        )

    def capture_forward(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        """Return the SHA-256 of the samples and labels with indices ``batch`` as the network
        receives them, and layer name → output for the samples with indices ``probe``, in evaluation
        mode."""
        _, _, *outputs = self.evaluate_layers(self.x[probe], self.y[probe])
        names = [name for name, _ in self.network.spec.layers]
        seen = (value.asnumpy()[: len(probe)] for value in outputs)
        activations = dict(zip(names, seen, strict=True))
        return batch_digest(*self.fetch_batch(batch)), activations

    def evaluate_layers(self, x: Array, y: Array) -> tuple[ms.Tensor, ...]:
        """Return the outputs of `LayerOutputs` for ``x`` and ``y``. A smaller number of samples is
        repeated up to the size of an evaluation, because any other number would be compiled anew;
        the outputs include the repeated ones."""
        n = max(len(y), eval_batch_size(y))
        filled = (
            np.resize(a, (n, *a.shape[1:])) for a in (self.model_inputs(x), y.astype(np.int32))
        )
        outputs: tuple[ms.Tensor, ...] = self.layer_outputs(*map(ms.Tensor.from_numpy, filled))
        return outputs

    def fetch_batch(self, batch: Array) -> tuple[Array, Array]:
        """Return the samples and the int32 labels with the indices ``batch`` as the network
        receives them."""
        x, y, *_ = self.batch_tensors(batch)
        return x.asnumpy(), y.asnumpy()

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return the mean loss over ``x``, ``y`` and the predicted classes in the shape of ``y``,
        in evaluation mode."""
        losses, predicted, *_ = self.evaluate_layers(x, y)
        return float(losses.asnumpy()[: y.size].mean(dtype=float)), predicted.asnumpy()[: len(y)]

    def weights(self) -> Arrays:
        """Return copies of the parameters and running statistics, in the order of
        `ModelSpec.tensors`."""
        both = {**self.parameters, **self.statistics}
        return {name: both[name].asnumpy().copy() for name in self.recipe.spec.tensors()}

    def running_statistics(self) -> Arrays:
        """Return canonical name → copy of the running statistics of batch normalization; empty for
        a model without it."""
        return {name: p.asnumpy().copy() for name, p in self.statistics.items()}

    def load_running_statistics(self, statistics: Mapping[str, Array]) -> None:
        """Set the running statistics to ``statistics``, canonical name → array; the parameters
        stay."""
        for name, statistic in self.statistics.items():
            statistic.set_data(ms.Tensor(statistics[name], statistic.dtype))

    def state(self) -> dict[str, Arrays]:
        """Return copies of the optimizer state, state name → parameter name → array, with that of
        the loss scaler and the hidden states carried between batches where there are any."""
        own = state(self.optimizer, list(self.parameters)) | self.scaler_state()
        return own if self.hidden is None else own | self.hidden.state()

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Set weights and running statistics, optimizer state, loss scaler and carried hidden
        states to those after update ``step``, as `weights` and `state` returned them; 0 is a fresh
        optimizer, whatever ``state`` has of it."""
        self.network.load(weights)
        state = self.pop_scaler_state(state if self.hidden is None else self.hidden.load(state))
        load_state(self.optimizer, state, self.applied_steps(step), list(self.parameters))
        self.step_count = step

    def transform_weights(self, fn: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Replace the parameters and running statistics by ``fn`` of their copies; the optimizer
        state stays."""
        self.network.load(fn(self.weights()))
