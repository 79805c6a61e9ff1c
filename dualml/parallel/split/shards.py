"""Parameter shards: which part of a parameter a rank holds, and how the ranks' parts are
assembled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from dualml.algorithms.communicator import Communicator
from dualml.common.array_types import Arrays


@dataclass(frozen=True)
class TensorShard:
    """Shard ``part`` of ``parts`` equal shards of a tensor of shape ``shape`` along ``axis``.

    With several ``blocks``, the axis consists of that many blocks of equal length, and the shard
    has its part of each block, as queries, keys and values of some heads. ``mirrored``: in every
    second block the parts are assigned in reverse order.

    Example:
        >>> TensorShard((6,), axis=0, part=1, parts=2).extract(np.arange(6))
        array([3, 4, 5])
        >>> TensorShard((8,), axis=0, part=0, parts=2, blocks=2).extract(np.arange(8))
        array([0, 1, 4, 5])
        >>> TensorShard((8,), part=0, parts=2, blocks=2, mirrored=True).extract(np.arange(8))
        array([0, 1, 6, 7])
    """

    shape: tuple[int, ...]
    axis: int = 0
    part: int = 0
    parts: int = 1
    blocks: int = 1
    mirrored: bool = False

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Shape of the shard: that of the whole tensor, with ``axis`` divided by ``parts``."""
        shape = list(self.shape)
        if self.parts > 1:
            shape[self.axis] //= self.parts
        return tuple(shape)

    def _indices(self) -> NDArray[np.int64]:
        """Return the indices along ``axis`` that the shard has, int64."""
        each = self.shape[self.axis] // (self.blocks * self.parts)
        return np.concatenate([np.arange(i * each, (i + 1) * each) for i in self.chunk_indices()])

    def chunk_indices(self) -> list[int]:
        """Return which of the ``blocks`` · ``parts`` equal chunks of the axis, from 0, the shard
        has, in the order in which it has them."""
        return [
            block * self.parts + (self.parts - 1 - self.part if turned else self.part)
            for block in range(self.blocks)
            for turned in (self.mirrored and block % 2 == 1,)
        ]

    def extract(self, whole: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of this shard of the tensor ``whole``."""
        if self.parts == 1:
            return whole.copy()
        return np.ascontiguousarray(np.take(whole, self._indices(), self.axis))

    def insert(self, whole: NDArray[Any], part: NDArray[Any]) -> None:
        """Write the shard ``part`` to its position in ``whole``, in place."""
        where: list[Any] = [slice(None)] * whole.ndim
        if self.parts > 1:
            where[self.axis] = self._indices()
        whole[tuple(where)] = part

    def __str__(self) -> str:
        if self.parts == 1:
            return "whole"
        word = {0: "rows", 1: "columns"}.get(self.axis, f"axis {self.axis}")
        if self.mirrored:
            n = self.blocks * self.parts
            return f"{word} " + " and ".join(f"{i + 1}/{n}" for i in self.chunk_indices())
        each = f" of each of {self.blocks} blocks" if self.blocks > 1 else ""
        return f"{word} {self.part + 1}/{self.parts}{each}"


def all_gather_arrays(comm: Communicator, arrays: Mapping[str, NDArray[Any]]) -> list[Arrays]:
    """Return the dictionaries of arrays of all ranks, in rank order, from this rank's ``arrays``;
    names and shapes may differ between ranks. All ranks call it."""
    packed = save({name: np.ascontiguousarray(a) for name, a in arrays.items()}) if arrays else b""
    length = np.array([len(packed)], np.int64)
    lengths = [int(comm.numpy(x)[0]) for x in comm.all_gather(comm.tensor(length))]
    padded = np.zeros(-(-max(lengths) // 8) * 8, np.uint8)
    padded[: len(packed)] = np.frombuffer(packed, np.uint8)
    gathered = comm.all_gather(comm.tensor(padded.view(np.int64)))
    raw = [comm.numpy(x).tobytes()[:n] for x, n in zip(gathered, lengths, strict=True)]
    return [load(text) if text else {} for text in raw]


def assemble_parameters(
    parts: Sequence[Mapping[str, NDArray[Any]]],
    pieces: Sequence[Mapping[str, TensorShard]],
    shapes: Mapping[str, tuple[int, ...]],
) -> Arrays:
    """Return whole parameters, by canonical name, assembled from the shards of all ranks; of
    replicated shards the lowest rank's is used, and names that no rank has are left out.

    Args:
        parts, pieces: of each rank, the arrays and the shard descriptions by canonical name.
        shapes: canonical name → full shape, in the order of the result.
    """
    wholes: Arrays = {}
    for name, shape in shapes.items():
        for part, held in zip(reversed(parts), reversed(pieces), strict=True):
            if name in part:
                if name not in wholes:
                    wholes[name] = np.empty(shape, part[name].dtype)
                held[name].insert(wholes[name], part[name])
    return wholes


def concat_slices(
    outputs: Sequence[NDArray[Any]], axis: int, blocks: int = 1, mirrored: bool = False
) -> NDArray[Any]:
    """Concatenate the slices of an activation that the ranks of a tensor-parallel group hold, one
    per rank in their order, along ``axis`` in the order of the whole axis. ``blocks`` and
    ``mirrored`` say how the axis was sliced, as in `TensorShard`."""
    if blocks == 1:
        return np.concatenate(outputs, axis)
    n, chunks = len(outputs), dict[int, NDArray[Any]]()
    for part, output in enumerate(outputs):
        places = TensorShard((), axis, part, n, blocks, mirrored).chunk_indices()
        chunks |= zip(places, np.split(output, blocks, axis), strict=True)
    return np.concatenate([chunks[i] for i in range(blocks * n)], axis)
