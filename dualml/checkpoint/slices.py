"""Slices of tensors that a rank holds, with their position in the whole tensor, ready to be
saved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dualml.backend import Training
from dualml.checkpoint.boxes import Box, of_range
from dualml.checkpoint.kinds import BITS, HELD, Array, kind_of
from dualml.checkpoint.stored import Shape
from dualml.errors import UserError, plain
from dualml.parse import is_unicode
from dualml.split.pieces import Piece
from dualml.split.training import SplitTraining


@dataclass(frozen=True, eq=False)
class Slice:
    """Consecutive indices of a tensor along every axis, as a rank holds them.

    Args:
        name: of the whole tensor.
        shape: of the whole tensor.
        offset: of the slice's first element.
        array: the slice; it is not copied.
        kind: element type, where ``array`` holds bits that NumPy has no dtype for, such as ``BF16``
            in unsigned integers; by default that of ``array``.

    Raises:
        UserError: the slice does not lie inside the tensor, or has a type that tensors do not have.

    Example:
        >>> import numpy as np
        >>> str(Slice("fc.weight", (8, 4), (2, 0), np.zeros((3, 4))).box)
        '[2:5, 0:4]'
    """

    name: str
    shape: Shape
    offset: tuple[int, ...]
    array: Array
    kind: str = ""

    def __post_init__(self) -> None:
        dtype, own = self.array.dtype, kind_of(self.array.dtype)
        kind = self.kind or own
        if kind is None or (kind != own and dtype != BITS.get(kind)):
            raise UserError(
                f"{self.name}: {dtype} cannot be saved as {kind or 'a tensor'}; there "
                f"are {', '.join(HELD)}"
            )
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "shape", tuple(map(int, self.shape)))
        object.__setattr__(self, "offset", tuple(map(int, self.offset)))
        if not is_unicode(self.name):
            raise UserError(f"{plain(self.name)} is no name of a tensor: not Unicode text")
        if not len(self.shape) == len(self.offset) == self.array.ndim:
            raise UserError(
                f"{self.name}: its shape {self.shape}, the offset {self.offset} and the slice's "
                f"shape {self.array.shape} are to have equally many axes"
            )
        if not self.box.fits(self.shape):
            raise UserError(f"{self.name}{self.box} lies outside of its shape {self.shape}")

    @classmethod
    def whole(cls, name: str, array: Array, kind: str = "") -> Slice:
        """Make the slice of a tensor that one rank holds completely."""
        return cls(name, array.shape, (0,) * array.ndim, array, kind)

    @property
    def box(self) -> Box:
        """Position of the slice in the whole tensor."""
        return Box(self.offset, self.array.shape)


def boxes_of(piece: Piece) -> list[Box]:
    """Return the position of a part of a parameter in the whole: one box, or one in each block."""
    if piece.parts == 1:
        return [Box.whole(piece.shape)]
    length, boxes = piece.shape[piece.axis] // (piece.blocks * piece.parts), []
    for chunk in piece.chunks():
        offset, shape = [0] * len(piece.shape), list(piece.shape)
        offset[piece.axis] = chunk * length
        shape[piece.axis] = length
        boxes.append(Box(tuple(offset), tuple(shape)))
    return boxes


def of_piece(name: str, piece: Piece, array: Array) -> Iterator[Slice]:
    """Yield the slices that a rank holds of a parameter of a split model (`dualml.split`)."""
    boxes = boxes_of(piece)
    parts = [array] if len(boxes) == 1 else np.split(array, len(boxes), piece.axis)
    for box, part in zip(boxes, parts, strict=True):
        yield Slice(name, piece.shape, box.offset, part)


def of_flat(name: str, shape: Sequence[int], begin: int, array: Array) -> Iterator[Slice]:
    """Yield the slices that a rank holds of a tensor whose shard is a range of a flat buffer.

    Args:
        name: of the whole tensor.
        shape: of the whole tensor.
        begin: index of the first element of ``array`` in the flattened tensor.
        array: the elements, with one axis.

    Raises:
        UserError: the range lies outside of the tensor.
    """
    if begin < 0 or begin + array.size > math.prod(shape):
        raise UserError(
            f"{name}: elements {begin:,} to {begin + array.size:,} of {math.prod(shape):,}"
        )
    at = 0
    for box in of_range(shape, begin, begin + array.size):
        part = array[at : at + box.volume].reshape(box.shape)
        yield Slice(name, tuple(shape), box.offset, part)
        at += box.volume


def of_training(training: Training) -> Iterator[Slice]:
    """Yield weights and optimizer state of a training; for a split model only what this rank holds.

    They are named as in a trial's own checkpoints: ``weights/NAME``, ``state/SLOT/NAME``.
    """
    if not isinstance(training, SplitTraining):
        yield from named(training.weights(), training.state(), {})
        return
    own = training.pieces[training.comm.rank]
    yield from named(training.stage.weights(), training.executor.state(), own)
    yield from named({}, training.scaling(), {})


def named(
    weights: Mapping[str, Array], state: Mapping[str, Mapping[str, Array]], own: Mapping[str, Piece]
) -> Iterator[Slice]:
    """Yield weights and optimizer state as slices under their names in a checkpoint; parameters in
    ``own`` are parts of larger ones."""
    arrays = {f"weights/{name}": (name, array) for name, array in weights.items()}
    for slot, values in state.items():
        arrays |= {f"state/{slot}/{name}": (name, array) for name, array in values.items()}
    for key, (name, array) in arrays.items():
        yield from of_piece(key, own.get(name, Piece(array.shape)), array)
