"""What sharing out states, gradients and parameters needs of a backend: a stage whose numbers lie
in flat vectors, and an optimizer over parts of them. Nothing here talks to other ranks.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from dualml.backend.ability import Ability, Tensor
from dualml.backend.recipe import Recipe

#: Slot → one array a vector.
Slots = dict[str, list[NDArray[Any]]]
#: Slot → one vector for each that the optimizer has.
State = Mapping[str, Sequence[Tensor]]


@dataclass(frozen=True)
class Vectors:
    """How the parameters of a stage lie in flat memory.

    Attributes:
        names: of each vector the parameters, one after the other from its beginning.
        lengths: elements of each, at least those of its parameters; what is left is nobody's.
        rooms: pieces of memory that the vectors take in turn, so that only so many consecutive ones
            are there at a time; 0: each vector has its own.
        lower: whether they are of the recipe's lower type, else of float32.
    """

    names: Sequence[Sequence[str]]
    lengths: Sequence[int]
    rooms: int = 0
    lower: bool = False

    @property
    def memory(self) -> Sequence[int]:
        """Elements of each piece of memory that the vectors lie in.

        >>> Vectors([["a"], ["b"], ["c"]], [4, 6, 8], rooms=2).memory
        [8, 6]
        """
        return largest(self.lengths, self.rooms) if self.rooms else self.lengths

    def room(self, number: int) -> int:
        """Which of them a vector lies in."""
        return number % self.rooms if self.rooms else number


def largest(lengths: Sequence[int], rooms: int) -> list[int]:
    """The largest of those that take each room in turn."""
    return [max(lengths[room::rooms], default=0) for room in range(rooms)]


class Shard(Protocol):
    """The optimizer of some 1-D tensors, which it changes in their place."""

    def finite(self, gradients: Sequence[Tensor]) -> bool:
        """Whether all their numbers are."""

    def update(self, gradients: Sequence[Tensor], step: int, made: int, scale: float) -> None:
        """Update ``step``, the ``made``-th that is made, with the gradients over ``scale``; they
        may be overwritten."""

    def state(self) -> Slots:
        """Copies."""

    def load(self, state: Slots, made: int) -> None:
        """Go to the point after ``made`` updates."""

    def held(self) -> int:
        """Bytes of the optimizer's state."""


class Shardable(Ability):
    """A `Stage` whose parameters and gradients lie where they are told to."""

    does = "keep the numbers of a model in vectors that ranks share out"

    @abstractmethod
    def flatten(self, weights: Vectors, gradients: Vectors) -> tuple[list[Tensor], list[Tensor]]:
        """From now on the parameters are parts of the first vectors, all zero at first, and their
        gradients are added up in parts of the second; the stage's own optimizer is given up.

        Raises:
            Unsupported: this backend does not keep numbers of that type.
        """

    @abstractmethod
    def wipe(self, vector: Tensor) -> None:
        """Fill a vector with zeros."""

    @abstractmethod
    def shard(self, recipe: Recipe, weights: Sequence[Tensor], state: State | None = None) -> Shard:
        """The recipe's optimizer over these vectors, or slices of vectors.

        Args:
            state: where its state lies: slot → a vector for each of ``weights``, as long as it.
                What is written there between two updates is the state from then on. None: in
                memory of its own.
        """

    @abstractmethod
    def put(self, vector: Tensor, array: NDArray[Any]) -> None:
        """Copy numbers of the host into a vector of the same length and type, in its place."""

    @abstractmethod
    def get(self, vector: Tensor, array: NDArray[Any]) -> None:
        """Copy a vector into such numbers of the host."""

    @abstractmethod
    def drop(self) -> None:
        """Forget what is kept for backward passes."""


def spans(names: Sequence[str], shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, int]]:
    """Name → first element of a parameter in its vector, and the one after its last.

    >>> spans(["a", "b"], {"a": (2, 3), "b": (4,)})
    {'a': (0, 6), 'b': (6, 10)}
    """
    places, stop = {}, 0
    for name in names:
        start, stop = stop, stop + math.prod(shapes[name])
        places[name] = (start, stop)
    return places
