"""What every backend and every training can do: what no framework can leave out of the boundary."""

from __future__ import annotations

import contextlib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualml.backend.ability import Able
from dualml.backend.recipe import Array, Recipe
from dualml.clock import WALL, start_wall
from dualml.precision import SLOT, Scaler

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Trace:
    """What one batch does to a model, seen from outside: nothing is changed by looking.

    Attributes:
        data: SHA-256 of the batch as the framework holds it (`batch_digest`).
        activations: layer name → output of that layer for the probe samples.
        loss: mean loss over the batch.
        gradients: canonical parameter name → gradient of the mean loss.
    """

    data: str
    activations: Arrays
    loss: float
    gradients: Arrays


class Training(Able, ABC):
    """A model, its optimizer and the training data on one device: what a trial works with.

    Arrays of parameters, gradients and state have the parameter's shape and its canonical name;
    a ``batch`` is indices of training samples, int64 (B,).

    Attributes:
        now: updates so far; the masks of Dropout are those of the next one.
        scaler: of the loss, where it is scaled (`dualml.precision`).
    """

    now: int
    scaler: Scaler | None = None

    @abstractmethod
    def step(self, batch: Array, step: int) -> Any:
        """The fast path: one update, compiled or fused, without a synchronisation.

        Args:
            batch: indices of training samples, int64 (B,); larger batches than `Recipe.chunk` are
                accumulated into one gradient of the whole.
            step: number of the update, from 1.

        Returns:
            The mean loss of the batch before the update in a form only `Backend.read` understands
            (the framework's lazy scalar, or one for each chunk with its weight).
        """

    def stretch(self, batches: Sequence[Any], first: int) -> list[Any]:
        """One update for each of the ``batches``, the first of them number ``first``; their lazy
        losses."""
        return [self.step(batch, step) for step, batch in enumerate(batches, start=first)]

    @abstractmethod
    def trace(self, batch: Array, probe: Array) -> Trace:
        """Loss and gradients of ``batch`` and activations of the samples ``probe``; the masks of
        Dropout are those of the next update."""

    @abstractmethod
    def evaluate(self, x: Array, y: Array) -> tuple[float, Array]:
        """Mean loss over ``x``, ``y`` and the predicted classes, integers in the shape of ``y``, in
        evaluation mode."""

    @abstractmethod
    def weights(self) -> Arrays:
        """Canonical name → copy of the parameter or buffer, in the order of `ModelSpec.tensors`."""

    @abstractmethod
    def state(self) -> dict[str, Arrays]:
        """Optimizer state: slot (``exp_avg``) → canonical name → copy; with `scaling`."""

    @abstractmethod
    def load(self, weights: Mapping[str, Array], state: Mapping[str, Arrays], step: int) -> None:
        """Go to the point after update ``step``, with these ``weights`` and this ``state``;
        ``Rule.init`` gives the state of step 0."""

    def running_statistics(self) -> Arrays:
        """Canonical name → copy of the running statistics of batch normalisation; a model without
        it has none."""
        return {}

    def load_running_statistics(self, statistics: Mapping[str, Array]) -> None:
        """Replace the running statistics; all else stays."""

    def learned(self) -> Arrays:
        """Copy what an optimizer changes: `weights` without running statistics."""
        running = self.running_statistics()
        return {name: w for name, w in self.weights().items() if name not in running}

    @contextlib.contextmanager
    def preserving_statistics(self) -> Iterator[None]:
        """Restore the running statistics afterwards: a forward pass that is only looked at moves
        them, too."""
        kept = self.running_statistics()
        try:
            yield
        finally:
            if kept:
                self.load_running_statistics(kept)

    def move(self, by: Callable[[Arrays], Mapping[str, Array]]) -> None:
        """Replace the weights by what ``by`` makes of them; all else stays.

        Args:
            by: of named arrays; ranks that share a model pass their own parts, and those that hold
                the same part pass it under the same name.
        """
        self.load(by(self.weights()), self.state(), self.now)

    # --- of a scaled loss -------------------------------------------------------------------------

    @property
    def scale(self) -> float:
        """What the loss of the next update is multiplied with."""
        return 1.0 if self.scaler is None else self.scaler.scale

    def unscaled(self, gradients: Mapping[str, Array]) -> Arrays:
        """What the next update makes of gradients of the scaled loss."""
        return dict(gradients) if self.scaler is None else self.scaler.used(gradients)

    def accepts(self, finite: bool) -> bool:
        """Whether an update is made, by whether all its gradients are finite."""
        return self.scaler is None or self.scaler.accepts(finite)

    def made(self, step: int) -> int:
        """Of the updates up to ``step`` those that were made."""
        return step - (0 if self.scaler is None else self.scaler.skipped)

    def scaling(self) -> dict[str, Arrays]:
        """Its part of the state."""
        return {} if self.scaler is None else {**self.scaler.state()}

    def rescale(self, state: Mapping[str, Arrays]) -> dict[str, Arrays]:
        """Take that part from what is to be loaded; the rest of it."""
        if self.scaler is not None:
            self.scaler.load(state)
        return {slot: named for slot, named in state.items() if slot != SLOT}


#: Samples of an evaluation at once: enough to keep a core busy, few enough to need little memory.
EVALUATED_AT_ONCE = 250
#: Of a text: each position has as many logits as there are words.
POSITIONS_AT_ONCE = 2048


def at_once(y: Array) -> int:
    """Samples of an evaluation at once: with one label each (N,), or with T of them (N, T)."""
    return EVALUATED_AT_ONCE if y.ndim == 1 else max(1, POSITIONS_AT_ONCE // y.shape[1])


def chunks(batch: Array, size: int) -> list[tuple[Array, float]]:
    """``batch`` cut into pieces of at most ``size`` indices, each with its share of the mean."""
    return [
        (batch[i : i + size], len(batch[i : i + size]) / len(batch))
        for i in range(0, len(batch), size)
    ]


def batch_digest(x: Array, y: Array) -> str:
    """SHA-256 of a batch: samples as float32 and labels as int64, whatever the framework held."""
    digest = hashlib.sha256(np.ascontiguousarray(x, np.float32).data)
    digest.update(np.ascontiguousarray(y, np.int64).data)
    return digest.hexdigest()


class Backend(Able, ABC):
    """What every backend can do; made by `BackendInfo.create` from a device and a number of
    threads, in the worker process alone.

    Attributes:
        name: as in its `BackendInfo`.
        dtype: of the numbers it computes with, ``float32`` or ``float64``.
        clock: the name of the clock that `stopwatch` reads, see `dualml.clock`.
    """

    name: str
    dtype: str
    clock: str = WALL

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Versions, device, threads and determinism settings, as recorded in the run folder."""

    @abstractmethod
    def training(self, recipe: Recipe) -> Training:
        """Put everything a trial needs on the device."""

    @abstractmethod
    def read(self, losses: Sequence[Any]) -> Array:
        """Lazy losses of `Training.step` → float64 array; the only synchronisation of a training
        loop."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for the device; called before every reading of the clock."""

    def stopwatch(self) -> Callable[[], float]:
        """Start a clock; return what stops it and tells the seconds, the device's included."""
        return start_wall(self.synchronize)
