"""Weights of single blocks as tensors of a framework, as they are or moved by units in the last
place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.algorithms.precision import round_to_type
from dualml.parity.envelope import perturb_in_place
from dualml.parity.models.lockstep.plan import is_inside
from dualml.parity.models.recorder import is_finite_float
from dualml.parity.models.sides import DTYPE, PRECISIONS


@dataclass(frozen=True)
class WeightSettings:
    """Settings with which the weights of one side are made.

    Attributes:
        seed: seed of the moved weights.
        precision: precision to which initial weights are rounded, such as ``bf16``, see
            `dualml.algorithms.precision`.
        dtype: dtype in whose units in the last place weights are moved.
    """

    seed: int = 0
    precision: str = PRECISIONS[DTYPE]
    dtype: str = DTYPE


class BlockWeights:
    """Makes the weights of one side, block by block.

    Args:
        source: name of a parameter → array, made when it is looked up.
        empty: names of the parameters that the model itself has no memory for.
        trained: names of the trained parameters, which draws move.
        to_tensor: returns an array as a tensor of the framework, floats in the side's dtype.
        settings: seed, precision and dtype.
    """

    def __init__(
        self,
        source: Mapping[str, NDArray[Any]],
        empty: Sequence[str],
        trained: Collection[str],
        to_tensor: Callable[[NDArray[Any]], Any],
        settings: WeightSettings,
    ) -> None:
        self.source, self.empty, self.trained = source, empty, trained
        self.to_tensor, self.settings = to_tensor, settings

    def make_block(self, block: str, draw: int | None = None) -> dict[str, Any]:
        """Return name → tensor of the weights of a block, see `make_weights`."""
        return self.make_weights(self.block_names(block), draw)

    def block_names(self, block: str) -> list[str]:
        """Return the names of the parameters in a block, without those that the model has memory
        for."""
        return [name for name in self.empty if is_inside(name, block)]

    def outside_names(self, blocks: Sequence[str]) -> list[str]:
        """Return the names of the parameters that lie in none of the blocks, without those that the
        model has memory for."""
        inside = {name for block in blocks for name in self.block_names(block)}
        return [name for name in self.empty if name not in inside]

    def make_weights(self, names: Sequence[str], draw: int | None = None) -> dict[str, Any]:
        """Return name → tensor of the framework of the weights with these names.

        Args:
            draw: number of the draw, from 0, that moves trained weights; None: they are not moved.
        """
        made = {}
        for name in names:
            array = self.source[name]
            if array.dtype.kind == "f":
                array = self.round_array(array)
                if draw is not None and name in self.trained and is_finite_float(array):
                    self.move_array(array, draw, name)
            made[name] = self.to_tensor(array)
        return made

    def round_array(self, array: NDArray[Any]) -> NDArray[np.float32]:
        """Return an array as a writable float32 array, rounded to the settings' precision (the
        coarser one of both sides); it may be the given array itself."""
        if self.settings.precision != PRECISIONS[DTYPE]:
            array = round_to_type(array, self.settings.precision)
        return np.require(array, np.float32, ["C", "W"])

    def move_array(self, array: NDArray[np.float32], draw: int, name: str) -> None:
        """Move every element of an array in place by 2^draw units in its last place."""
        precision = PRECISIONS[self.settings.dtype]
        perturb_in_place(array, self.settings.seed, draw, 1, name, precision)
