"""Interface that every backend and every training implements."""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.algorithms.precision import SLOT, Scaler
from dualml.backend.capability import SupportsCapabilities
from dualml.backend.training_spec import Array, TrainingSpec
from dualml.common.clock import WALL, start_wall_clock
from dualml.common.former_members import keep_former_members

Arrays = dict[str, Array]


@dataclass(frozen=True)
class BatchTrace:
    """Values that one batch computes in a model, for comparison; taking a trace changes nothing.

    Attributes:
        data: SHA-256 of the batch as the framework holds it (`batch_digest`).
        activations: layer name → output of that layer for the probe samples.
        loss: mean loss over the batch; 0 where ranks combine gradients, or an engine trains.
        gradients: canonical parameter name → gradient of the mean loss; empty where an engine
            trains.
    """

    data: str
    activations: Arrays
    loss: float
    gradients: Arrays


@keep_former_members
class Training(SupportsCapabilities, ABC):
    """A model, its optimizer and its training data on one device: what a trial trains.

    Arrays of parameters, gradients and state have the parameter's shape and canonical name. A
    ``batch`` is the indices of training samples, int64 (B,). Where ranks share a model (split,
    sharded, or driven by an engine), each has its own training, and all of them call the same
    methods in the same order unless the subclass says otherwise.

    Attributes:
        step_count: updates so far; the dropout masks are those of the next update.
        scaler: loss scaler, or None where the loss is not scaled (`dualml.algorithms.precision`).
    """

    step_count: int
    scaler: Scaler | None = None

    @abstractmethod
    def step(self, batch: Array, step: int) -> Any:
        """Run one update on the fast path, compiled or fused, without synchronising with the
        device. Copies of a model on several ranks are not combined here, except by an engine; see
        `GradientAccess`.

        Args:
            batch: indices of training samples, int64 (B,); batches larger than `TrainingSpec.chunk`
                are accumulated into one gradient.
            step: number of the update, from 1.

        Returns:
            The mean loss of the batch before the update, in a form that only
            `Backend.materialize_losses` understands (the framework's lazy scalar, or one per chunk
            with its weight); for a split model, only its own ``materialize_losses``.
        """

    def run_steps(self, batches: Sequence[Any], first: int) -> list[Any]:
        """Run one update for each of the ``batches``, numbered from ``first``; return their lazy
        losses."""
        return [self.step(batch, step) for step, batch in enumerate(batches, start=first)]

    @abstractmethod
    def trace(self, batch: Array, probe: Array) -> BatchTrace:
        """Return loss and gradients of ``batch`` with the dropout masks of the next update, and
        activations of the samples ``probe`` in evaluation mode. Nothing is updated."""

    @abstractmethod
    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return the mean loss over ``x``, ``y`` and the predicted classes, integers in the shape
        of ``y``, in evaluation mode."""

    @abstractmethod
    def weights(self) -> Arrays:
        """Return canonical name → copy of each parameter and buffer, whole, in the order of
        `ModelSpec.tensors`. All ranks that share a model call it."""

    @abstractmethod
    def state(self) -> dict[str, Arrays]:
        """Return the optimizer state: state key (``exp_avg``) → canonical name → copy; the loss
        scaler's state (`scaler_state`) and carried hidden states are included. All ranks that share
        a model call it; an engine that shards the state does not show it."""

    @abstractmethod
    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Replace the weights by ``weights``, the optimizer's (and loss scaler's) state by
        ``state``, and `step_count` by ``step``: the point after update ``step``.
        ``OptimizerSpec.init`` gives the state of step 0."""

    def running_statistics(self) -> Arrays:
        """Return canonical name → copy of batch normalisation's running statistics; empty for a
        model without it."""
        return {}

    def load_running_statistics(self, statistics: Mapping[str, Array]) -> None:
        """Replace batch normalisation's running statistics; everything else stays. The base class
        does nothing, for models without them."""

    def trainable_weights(self) -> Arrays:
        """Return copies of the arrays that the optimizer changes: `weights` without running
        statistics. All ranks that share a model call it."""
        running = self.running_statistics()
        return {name: w for name, w in self.weights().items() if name not in running}

    @contextlib.contextmanager
    def preserving_statistics(self) -> Iterator[None]:
        """Return a context manager that restores batch normalisation's running statistics on exit,
        because a forward pass that only observes moves them too."""
        kept = self.running_statistics()
        try:
            yield
        finally:
            if kept:
                self.load_running_statistics(kept)

    def transform_weights(self, fn: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Replace the weights by ``fn(weights)``; everything else stays.

        Args:
            fn: function from canonical name → array, parameters and buffers, to new arrays under
                the same names. Ranks that share a model pass their own parts, and ranks that hold
                the same part pass it under the same name.
        """
        self.load(fn(self.weights()), self.state(), self.step_count)

    # --- loss scaling -----------------------------------------------------------------------------

    @property
    def loss_scale(self) -> float:
        """Factor that the loss of the next update is multiplied by; 1 without a loss scaler."""
        return 1.0 if self.scaler is None else self.scaler.scale

    def unscale_gradients(self, gradients: Mapping[str, Array]) -> Arrays:
        """Return the gradients that the next update uses, from ``gradients`` of the scaled loss:
        all zeros if one is not finite; a shallow copy without a loss scaler."""
        return dict(gradients) if self.scaler is None else self.scaler.unscale_gradients(gradients)

    def should_step(self, finite: bool) -> bool:
        """Return whether the update is applied, given whether all its gradients are finite, and let
        the loss scaler adjust its scale, or raise `TrialError` after too many skipped ones. Without
        a scaler every update is applied. Call it once per update, on every rank."""
        return self.scaler is None or self.scaler.should_step(finite)

    def applied_steps(self, step: int) -> int:
        """Return how many of the updates up to the current ``step`` were applied: all but those
        that the loss scaler has skipped so far."""
        return step - (0 if self.scaler is None else self.scaler.skipped)

    def scaler_state(self) -> dict[str, Arrays]:
        """Return the loss scaler's part of the optimizer state; empty without a scaler."""
        return {} if self.scaler is None else {**self.scaler.state()}

    def pop_scaler_state(self, state: Mapping[str, Arrays]) -> dict[str, Arrays]:
        """Load the loss scaler's part of the optimizer state ``state`` into the scaler, if there is
        one; return ``state`` without that part, as a new dict."""
        if self.scaler is not None:
            self.scaler.load(state)
        return {slot: named for slot, named in state.items() if slot != SLOT}


#: Samples per evaluation batch: enough to keep a core busy, few enough to need little memory.
EVALUATED_AT_ONCE = 250
#: Positions per evaluation batch of a text: each has as many logits as there are words.
POSITIONS_AT_ONCE = 2048


def eval_batch_size(y: Array) -> int:
    """Return the number of samples per evaluation batch: 250 for labels (N,), 2048 positions but at
    least one sample for labels (N, T), one per position."""
    return EVALUATED_AT_ONCE if y.ndim == 1 else max(1, POSITIONS_AT_ONCE // y.shape[1])


def split_into_chunks(batch: Array, size: int) -> list[tuple[Array, float]]:
    """Split ``batch`` into chunks of at most ``size`` indices, each with its share of the batch (0
    … 1); an empty batch has none."""
    return [
        (batch[i : i + size], len(batch[i : i + size]) / len(batch))
        for i in range(0, len(batch), size)
    ]


def batch_digest(x: Array, y: Array) -> str:
    """Return the SHA-256 of a batch: samples as float32 and labels as int64, whatever types the
    framework used."""
    digest = hashlib.sha256(np.ascontiguousarray(x, np.float32).data)
    digest.update(np.ascontiguousarray(y, np.int64).data)
    return digest.hexdigest()


@keep_former_members
class Backend(SupportsCapabilities, ABC):
    """Interface of every backend. `BackendInfo.create` makes it from a device and a number of
    threads, only in the worker process.

    Attributes:
        name: as in its `BackendInfo`.
        dtype: type that it computes with, ``float32`` or ``float64``.
        clock: name of the clock that `stopwatch` reads, see `dualml.common.clock`.
    """

    name: str
    dtype: str
    clock: str = WALL

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Return versions, device, threads and determinism settings, as recorded in the run
        folder."""

    @abstractmethod
    def training(self, recipe: TrainingSpec) -> Training:
        """Return the `Training` that ``recipe`` specifies, with model, optimizer and data on the
        device."""

    @abstractmethod
    def materialize_losses(self, losses: Sequence[Any]) -> Array:
        """Copy the lazy losses of `Training.step` to the host as a float64 array; the only
        synchronisation of a training loop."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the device; called before every reading of the clock."""

    def stopwatch(self) -> Callable[[], float]:
        """Start a clock; return a function that stops it and returns the seconds, the device's work
        included."""
        return start_wall_clock(self.synchronize)
