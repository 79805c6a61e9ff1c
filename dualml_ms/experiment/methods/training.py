"""A trial's data and evaluation around a method, which makes the updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import mindspore as ms
import numpy as np
from mindspore import amp, communication, ops
from mindspore.mint.distributed import get_world_size, is_initialized

from dualml.algorithms.communicator import Communicator
from dualml.algorithms.model.dropout import dropout_masks
from dualml.backend import (
    Array,
    Arrays,
    MemoryReport,
    MemoryUsage,
    TrainingSpec,
    batch_digest,
    eval_batch_size,
)
from dualml.common.errors import Unsupported
from dualml.experiment.methods import MethodInfo
from dualml.experiment.methods.engine import MethodTraining
from dualml.experiment.methods.skips import SkippedUpdates
from dualml_ms.algorithms.memory import nbytes, state_bytes
from dualml_ms.algorithms.model import LOSSES, Network
from dualml_ms.algorithms.model.network import LayerOutputs
from dualml_ms.algorithms.optim import load_state, optimizer, state
from dualml_ms.common.compiled import CompiledCell
from dualml_ms.experiment.methods.base import MethodContext, TrainingMethod
from dualml_ms.parallel.data_parallel import data_parallel_mode


class MindSporeMethod(MethodTraining, MemoryReport):
    """MindSpore implementation of `dualml.experiment.methods.engine.MethodTraining`.

    A method is made once, and a trial begins with its weights, state and loss scale reset, because
    compilation takes seconds.
    """

    def __init__(
        self,
        make: type[TrainingMethod],
        info: MethodInfo,
        recipe: TrainingSpec,
        comm: Communicator | None,
    ) -> None:
        if recipe.spec.dropout_names and not make.takes_masks:
            raise Unsupported(
                f"{info.title} gives a model its samples alone; {recipe.spec.name} "
                "takes the masks of its Dropout too"
            )
        self.recipe, self.comm, self.step_count, self.skips = recipe, comm, 0, SkippedUpdates()
        self.network = self._make_network()
        self.parameters = self.network.canonical()
        rates = recipe.rule.lr if recipe.schedule.constant else recipe.learning_rates()
        given = MethodContext(
            model=self.network,
            optimizer=lambda parameters: optimizer(recipe.rule, parameters, rates),
            criterion=LOSSES[recipe.loss](),
            rank=0 if comm is None else comm.rank,
            processes=1 if comm is None else comm.size,
            group="" if comm is None else comm.group,
            options=info.options,
        )
        self.eval_network = self._make_network() if make.changes_model else self.network
        with capture_parallel_mode() as self.mode:
            self.method = make(given)
        self.is_resumable, self.weight = make.is_resumable, 1.0
        self.processes = count_processes(comm)
        self.compiled_lengths = set[int]()
        self.initial_scaler_values = self._read_scaler_values()
        self.layer_outputs = CompiledCell(LayerOutputs(self.eval_network, LOSSES[recipe.loss]()))
        self.x, self.y = self.model_inputs(recipe.x), recipe.y.astype(np.int32)

    def _make_network(self) -> Network:
        """Make a network with the trial's initial weights, in training mode and not in low
        precision."""
        network = Network(self.recipe.spec)
        network.load(self.recipe.weights)
        network.set_train()
        return network

    def step(self, batch: Array, step: int, weight: float = 1.0) -> list[tuple[ms.Tensor, float]]:
        """Make update ``step`` with this process's samples ``batch``; return a list of one pair,
        its lazy mean loss and 1. All ranks call it. ``weight`` is the weight of this loss in the
        mean over the processes."""
        if weight != self.weight:  # in an uneven last batch, and after it
            ops.assign(self.method.weight, ms.Tensor(weight, ms.float32))
            self.weight = weight
        return self.run_steps([batch], step)[0]

    def run_steps(
        self, batches: Sequence[Array], first: int
    ) -> list[list[tuple[ms.Tensor, float]]]:
        """Make an update for each batch in the method's own loop, numbered from ``first``; return
        for each a list of one pair, the lazy mean loss and 1."""
        given = [self.batch_arrays(batch, step) for step, batch in enumerate(batches, start=first)]
        lengths = {len(batch) for batch in batches}
        with self._parallel_mode() if lengths - self.compiled_lengths else nullcontext():
            losses = (
                self._run_scaled_steps(given)
                if self.initial_scaler_values
                else self.method.run_steps(given)
            )
        self.compiled_lengths |= lengths
        self.step_count = first + len(batches) - 1
        return [[(loss, 1.0)] for loss in losses]

    def _run_scaled_steps(self, given: Sequence[tuple[Array, ...]]) -> list[ms.Tensor]:
        """Make updates one by one, record in `skips` which of them the loss scaler skipped, and
        return their lazy losses. Skips are found by the optimizer's own step counts, which are read
        together at the end."""
        losses, counts = list[ms.Tensor](), [self.method.optimizer.global_step + 0]
        for batch in given:
            losses += self.method.run_steps([batch])
            counts.append(self.method.optimizer.global_step + 0)
        for before, after in pairwise(int(count.asnumpy()[0]) for count in counts):
            self.skips.note(after > before, self._read_loss_scale)
        return losses

    def _read_loss_scale(self) -> float:
        """Return the current scale of the method's loss scaler."""
        return float(self.method.scaler.scale_value.asnumpy())

    @contextmanager
    def _parallel_mode(self) -> Iterator[None]:
        """Inside the block, set MindSpore's global parallel mode to the one in which the method was
        made: data parallel mode, or nothing to set."""
        data = self.mode == [ms.ParallelMode.DATA_PARALLEL] and self.comm is not None
        with data_parallel_mode(self.comm) if data else nullcontext():
            yield

    def model_inputs(self, x: Array) -> Array:
        """Return tokens as int32, which MindSpore's lookup needs, and images unchanged."""
        return x.astype(np.int32) if self.recipe.spec.takes_tokens else x

    def batch_arrays(self, part: Array, step: int) -> tuple[Array, ...]:
        """Return samples and labels with the indices ``part``, and the masks of the model's Dropout
        layers for them in update ``step``."""
        drawn = dropout_masks(self.recipe.spec, self.recipe.seed, step, part).values()
        return self.x[part], self.y[part], *drawn

    def capture_forward(self, batch: Array, probe: Array) -> tuple[str, Arrays]:
        """Return the SHA-256 of the samples and labels with indices ``batch`` as the model receives
        them, and layer name → output for the samples with indices ``probe``, in evaluation mode."""
        _, _, *outputs = self.evaluate_layers(self.x[probe], self.y[probe])
        names = [name for name, _ in self.eval_network.spec.layers]
        seen = (value.asnumpy()[: len(probe)] for value in outputs)
        return batch_digest(*self.fetch_batch(batch)), dict(zip(names, seen, strict=True))

    def evaluate_layers(self, x: Array, y: Array) -> tuple[ms.Tensor, ...]:
        """Return the outputs of `LayerOutputs` for ``x`` and ``y``, which are repeated up to the
        size of an evaluation if they are fewer: the outputs include the repeated ones. A model that
        the method changes is evaluated by an unchanged copy."""
        if self.eval_network is not self.network:
            self.eval_network.load(self.weights())
        n = max(len(y), eval_batch_size(y))
        filled = (
            np.resize(a, (n, *a.shape[1:])) for a in (self.model_inputs(x), y.astype(np.int32))
        )
        outputs: tuple[ms.Tensor, ...] = self.layer_outputs(*map(ms.Tensor.from_numpy, filled))
        return outputs

    def fetch_batch(self, batch: Array) -> tuple[Array, Array]:
        """Return the samples and int32 labels with the indices ``batch`` as the model receives
        them."""
        x, y, *_ = self.batch_arrays(batch, self.step_count + 1)
        return x, y

    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return the mean loss over ``x``, ``y`` and the predicted classes in the shape of ``y``,
        in evaluation mode."""
        losses, predicted, *_ = self.evaluate_layers(x, y)
        return float(losses.asnumpy()[: y.size].mean(dtype=float)), predicted.asnumpy()[: len(y)]

    def weights(self) -> Arrays:
        """Return canonical name → copy of each parameter."""
        return {name: p.asnumpy().copy() for name, p in self.parameters.items()}

    def state(self) -> dict[str, Arrays]:
        """Return copies of the optimizer state, state name → parameter name → array, empty if the
        method cannot be resumed; with a loss scaler also which updates it skipped."""
        skips = self.skips.state(self._read_loss_scale()) if self.initial_scaler_values else {}
        return (
            state(self.method.optimizer, self.optimizer_names()) if self.is_resumable else {}
        ) | skips

    def measure_memory(self, batch: Array | None = None) -> MemoryUsage:
        """Return the bytes of weights, gradients and optimizer state; ``batch`` is ignored. A
        gradient has its parameter's size, whether in a graph or in the sums of micro-batches: at
        every level of mixed precision parameters stay float32 and are cast inside of the graph,
        where copies and activations are not visible."""
        own = self.method.optimizer
        gradients = getattr(self.method, "sums", own.parameters)
        return MemoryUsage(nbytes(self.parameters.values()), nbytes(gradients), state_bytes(own))

    def optimizer_names(self) -> list[str]:
        """Return the canonical names of the parameters in the order of the optimizer."""
        own = {id(parameter): name for name, parameter in self.parameters.items()}
        return [own[id(parameter)] for parameter in self.method.optimizer.parameters]

    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Set weights, optimizer state and skipped updates to those after update ``step``, and the
        loss scale to its initial value; at step 0, and for a method that cannot be resumed, the
        optimizer is a fresh one."""
        self.transform_weights(lambda _: weights)
        # A trial of a method with more state than that begins anew, or has ended.
        kept = (state, step) if self.is_resumable else ({}, 0)
        load_state(self.method.optimizer, *kept, self.optimizer_names())
        self.skips.load(state)
        for parameter, value in self.initial_scaler_values:
            ops.assign(parameter, ms.Tensor(value))
        self.step_count = step

    def transform_weights(self, fn: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Replace the parameters in place by ``fn`` of their copies; the optimizer state stays."""
        moved = fn(self.weights())
        for name, parameter in self.parameters.items():
            ops.assign(parameter, ms.Tensor(moved[name], parameter.dtype))

    def _read_scaler_values(self) -> list[tuple[ms.Parameter, Array]]:
        """Return the loss scaler's parameters and copies of their initial values; empty without a
        scaler."""
        scaler = getattr(self.method, "scaler", None)
        kept = vars(scaler).values() if isinstance(scaler, amp.LossScaler) else ()
        return [(p, p.asnumpy().copy()) for p in kept if isinstance(p, ms.Parameter)]


def count_processes(comm: Communicator | None) -> int:
    """Return the number of processes that MindSpore reports: those of the group of ``comm``,
    without one those of the world, 1 outside of a cluster."""
    if comm is not None:
        return int(communication.get_group_size(comm.group))
    return int(get_world_size()) if is_initialized() else 1


@contextmanager
def capture_parallel_mode() -> Iterator[list[str]]:
    """Yield a list to which the parallel mode set inside the block is appended at its end, unless
    it raises; then reset the mode."""
    modes = list[str]()
    try:
        yield modes
        modes.append(ms.get_auto_parallel_context("parallel_mode"))
    finally:
        ms.reset_auto_parallel_context()
