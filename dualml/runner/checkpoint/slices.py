"""Slices of tensors that a rank holds, with their position in the whole tensor, ready to be
saved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dualml.backend import Training
from dualml.common.errors import UserError, escape_unprintable
from dualml.common.former_members import keep_former_members
from dualml.common.parse import is_unicode
from dualml.parallel.split.shards import TensorShard
from dualml.parallel.split.training import SplitTraining
from dualml.runner.checkpoint.boxes import IndexBox, range_boxes
from dualml.runner.checkpoint.kinds import BITS, STORAGE_DTYPES, Array, kind_of
from dualml.runner.checkpoint.stored_checkpoint import Shape


@keep_former_members
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
                f"are {', '.join(STORAGE_DTYPES)}"
            )
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "shape", tuple(map(int, self.shape)))
        object.__setattr__(self, "offset", tuple(map(int, self.offset)))
        if not is_unicode(self.name):
            raise UserError(
                f"{escape_unprintable(self.name)} is no name of a tensor: not Unicode text"
            )
        if not len(self.shape) == len(self.offset) == self.array.ndim:
            raise UserError(
                f"{self.name}: its shape {self.shape}, the offset {self.offset} and the slice's "
                f"shape {self.array.shape} are to have equally many axes"
            )
        if not self.box.fits(self.shape):
            raise UserError(f"{self.name}{self.box} lies outside of its shape {self.shape}")

    @classmethod
    def full(cls, name: str, array: Array, kind: str = "") -> Slice:
        """Make the slice of a tensor that one rank holds completely."""
        return cls(name, array.shape, (0,) * array.ndim, array, kind)

    @property
    def box(self) -> IndexBox:
        """Position of the slice in the whole tensor."""
        return IndexBox(self.offset, self.array.shape)


def piece_boxes(piece: TensorShard) -> list[IndexBox]:
    """Return where a rank's part of a parameter lies in the whole: one box, or, for a parameter of
    several blocks that are each split (fused projections), one in each block."""
    if piece.parts == 1:
        return [IndexBox.full(piece.shape)]
    whole = IndexBox.full(piece.shape)
    length = piece.shape[piece.axis] // (piece.blocks * piece.parts)
    return [
        whole.narrow(piece.axis, chunk * length, (chunk + 1) * length)
        for chunk in piece.chunk_indices()
    ]


def piece_slices(name: str, piece: TensorShard, array: Array) -> Iterator[Slice]:
    """Yield the slices that a rank holds of a parameter of a split model (`dualml.parallel.split`).

    Args:
        name: of the parameter.
        piece: which part of it the rank holds.
        array: the values of that part.
    """
    boxes = piece_boxes(piece)
    parts = [array] if len(boxes) == 1 else np.split(array, len(boxes), piece.axis)
    for box, part in zip(boxes, parts, strict=True):
        yield Slice(name, piece.shape, box.offset, part)


def flat_slices(name: str, shape: Sequence[int], begin: int, array: Array) -> Iterator[Slice]:
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
    for box in range_boxes(shape, begin, begin + array.size):
        part = array[at : at + box.volume].reshape(box.shape)
        yield Slice(name, tuple(shape), box.offset, part)
        at += box.volume


def training_slices(training: Training) -> Iterator[Slice]:
    """Yield weights and optimizer state of a training; for a split model only what this rank holds,
    for one sharded by ZeRO all of it, gathered from the ranks, which all iterate it.

    They are named as in a trial's own checkpoints: ``weights/NAME``, ``state/SLOT/NAME``.
    """
    if not isinstance(training, SplitTraining):
        yield from named_slices(training.weights(), training.state(), {})
        return
    own = training.pieces[training.comm.rank]
    yield from named_slices(training.stage.weights(), training.executor.state(), own)
    yield from named_slices({}, training.scaler_state(), {})


def named_slices(
    weights: Mapping[str, Array],
    state: Mapping[str, Mapping[str, Array]],
    own: Mapping[str, TensorShard],
) -> Iterator[Slice]:
    """Yield weights and optimizer state as slices, named ``weights/NAME`` and ``state/SLOT/NAME``.
    Parameters in ``own`` are parts of larger ones, which it describes; all others are whole."""
    arrays = {f"weights/{name}": (name, array) for name, array in weights.items()}
    for slot, values in state.items():
        arrays |= {f"state/{slot}/{name}": (name, array) for name, array in values.items()}
    for key, (name, array) in arrays.items():
        yield from piece_slices(key, own.get(name, TensorShard(array.shape)), array)
