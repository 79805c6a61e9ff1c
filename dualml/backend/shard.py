"""Interface that sharding (ZeRO) needs from a backend: a stage whose parameters and gradients
lie in flat vectors, and an optimizer over slices of them. Nothing here communicates with other
ranks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from dualml.backend.capability import Capability, Tensor
from dualml.backend.training_spec import TrainingSpec

#: State key → one array per vector.
Slots = dict[str, list[NDArray[Any]]]
#: State key → one vector for each vector of the optimizer.
State = Mapping[str, Sequence[Tensor]]


@dataclass(frozen=True)
class FlatLayout:
    """Layout of a stage's parameters in flat memory.

    Attributes:
        names: parameters of each vector, stored one after the other from its beginning.
        lengths: elements of each vector, at least those of its parameters; the rest is padding.
        buffer_slots: number of memory buffers that the vectors use in turn, so that only that many
            consecutive vectors are resident at a time; 0: each vector has its own memory.
        low_precision: whether they are of the training's low-precision type rather than float32.
    """

    names: Sequence[Sequence[str]]
    lengths: Sequence[int]
    buffer_slots: int = 0
    low_precision: bool = False

    @property
    def buffer_lengths(self) -> Sequence[int]:
        """Elements of each memory buffer that the vectors lie in.

        >>> FlatLayout([["a"], ["b"], ["c"]], [4, 6, 8], buffer_slots=2).buffer_lengths
        [8, 6]
        """
        return slot_lengths(self.lengths, self.buffer_slots) if self.buffer_slots else self.lengths

    def slot_of(self, number: int) -> int:
        """Return the index of the memory buffer in which vector ``number`` lies."""
        return number % self.buffer_slots if self.buffer_slots else number


def slot_lengths(lengths: Sequence[int], slots: int) -> list[int]:
    """Return the length of each buffer slot: vector i uses slot i mod ``slots``, which is as long
    as the longest of its vectors, 0 without any."""
    return [max(lengths[slot::slots], default=0) for slot in range(slots)]


class OptimizerShard(Protocol):
    """The optimizer of some 1-D tensors, which it updates in place."""

    def finite(self, gradients: Sequence[Tensor]) -> bool:
        """Return whether all elements of the gradients are finite."""

    def update(self, gradients: Sequence[Tensor], step: int, made: int, scale: float) -> None:
        """Apply update ``step`` with the gradients divided by ``scale``; it is the ``made``-th
        update that is really applied. The gradients may be overwritten."""

    def state(self) -> Slots:
        """Return state key → copies on the host, one array per tensor."""

    def load(self, state: Slots, made: int) -> None:
        """Restore the state from ``state``, as `state` returns it, after ``made`` applied
        updates."""

    def state_bytes(self) -> int:
        """Return the bytes of the optimizer's state."""


class FlatParameterStorage(Capability):
    """A `Stage` whose parameters and gradients are stored in the flat vectors of a given layout."""

    description = "store a model in flat vectors that are sharded over ranks"

    @abstractmethod
    def flatten(
        self, weights: FlatLayout, gradients: FlatLayout
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Replace the parameters by views into new zero-filled vectors of the layout ``weights``,
        and accumulate gradients in vectors of the layout ``gradients``; return both. The stage's
        own optimizer is discarded, so `Stage.update` must not be called any more.

        Raises:
            Unsupported: this backend does not store numbers of that type.
        """

    @abstractmethod
    def zero_vector(self, vector: Tensor) -> None:
        """Fill a vector with zeros."""

    @abstractmethod
    def make_optimizer_shard(
        self, recipe: TrainingSpec, weights: Sequence[Tensor], state: State | None = None
    ) -> OptimizerShard:
        """Return the training's optimizer over these vectors, or slices of vectors.

        Args:
            state: memory for the optimizer state: state key → one vector for each of ``weights``,
                of the same length. Values written there between two updates become the state. None:
                the optimizer allocates its own memory.
        """

    @abstractmethod
    def copy_from_host(self, vector: Tensor, array: NDArray[Any]) -> None:
        """Copy a host array into a device vector of the same length and type, in place."""

    @abstractmethod
    def copy_to_host(self, vector: Tensor, array: NDArray[Any]) -> None:
        """Copy a device vector into a host array of the same length and type, in place."""

    @abstractmethod
    def drop_saved_activations(self) -> None:
        """Discard everything saved for backward passes."""


def parameter_spans(
    names: Sequence[str], shapes: Mapping[str, Sequence[int]]
) -> dict[str, tuple[int, int]]:
    """Return parameter name → (first element, one past its last) in a vector that holds ``names``
    in order.

    >>> parameter_spans(["a", "b"], {"a": (2, 3), "b": (4,)})
    {'a': (0, 6), 'b': (6, 10)}
    """
    places, stop = {}, 0
    for name in names:
        start, stop = stop, stop + math.prod(shapes[name])
        places[name] = (start, stop)
    return places
