"""Which part of a parameter a rank has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Piece:
    """Part ``part`` of ``parts`` equal ones of a tensor of shape ``shape`` along ``axis``.

    With several ``blocks`` the axis holds as many blocks of equal length, and the piece has its
    part of each: queries, keys and values of some heads.

    Example:
        >>> Piece((6,), axis=0, part=1, parts=2).take(np.arange(6))
        array([3, 4, 5])
        >>> Piece((8,), axis=0, part=0, parts=2, blocks=2).take(np.arange(8))
        array([0, 1, 4, 5])
    """

    shape: tuple[int, ...]
    axis: int = 0
    part: int = 0
    parts: int = 1
    blocks: int = 1

    @property
    def local(self) -> tuple[int, ...]:
        """Shape of the part."""
        shape = list(self.shape)
        if self.parts > 1:
            shape[self.axis] //= self.parts
        return tuple(shape)

    def _rows(self) -> NDArray[np.int64]:
        length = self.shape[self.axis] // self.blocks
        each = length // self.parts
        own = np.arange(self.part * each, (self.part + 1) * each)
        return np.concatenate([block * length + own for block in range(self.blocks)])

    def take(self, whole: NDArray[Any]) -> NDArray[Any]:
        """The part of the whole tensor, as a copy."""
        if self.parts == 1:
            return whole.copy()
        return np.ascontiguousarray(np.take(whole, self._rows(), self.axis))

    def put(self, whole: NDArray[Any], part: NDArray[Any]) -> None:
        """Write the part into its place in the whole tensor."""
        where: list[Any] = [slice(None)] * whole.ndim
        if self.parts > 1:
            where[self.axis] = self._rows()
        whole[tuple(where)] = part

    def __str__(self) -> str:
        if self.parts == 1:
            return "whole"
        word = {0: "rows", 1: "columns"}.get(self.axis, f"axis {self.axis}")
        each = f" of each of {self.blocks} blocks" if self.blocks > 1 else ""
        return f"{word} {self.part + 1}/{self.parts}{each}"
