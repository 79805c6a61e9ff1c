"""Named arrays of all ranks on every rank, and parameters put together from their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from dualml.communicator import Communicator
from dualml.split.pieces import Piece

Arrays = dict[str, NDArray[Any]]


def share(comm: Communicator, arrays: Mapping[str, NDArray[Any]]) -> list[Arrays]:
    """Every rank's arrays, in the order of ranks; names and shapes may differ between them."""
    packed = save({name: np.ascontiguousarray(a) for name, a in arrays.items()}) if arrays else b""
    length = np.array([len(packed)], np.int64)
    lengths = [int(comm.numpy(x)[0]) for x in comm.all_gather(comm.tensor(length))]
    padded = np.zeros(-(-max(lengths) // 8) * 8, np.uint8)
    padded[: len(packed)] = np.frombuffer(packed, np.uint8)
    gathered = comm.all_gather(comm.tensor(padded.view(np.int64)))
    raw = [comm.numpy(x).tobytes()[:n] for x, n in zip(gathered, lengths, strict=True)]
    return [load(text) if text else {} for text in raw]


def whole(
    parts: Sequence[Mapping[str, NDArray[Any]]],
    pieces: Sequence[Mapping[str, Piece]],
    shapes: Mapping[str, tuple[int, ...]],
) -> Arrays:
    """Parameters from the parts of all ranks; of copies, that of the lowest rank.

    Args:
        parts, pieces: of each rank, by canonical name.
        shapes: canonical name → shape of the whole, in the order wanted.
    """
    wholes: Arrays = {}
    for name, shape in shapes.items():
        for part, held in zip(reversed(parts), reversed(pieces), strict=True):
            if name in part:
                if name not in wholes:
                    wholes[name] = np.empty(shape, part[name].dtype)
                held[name].put(wholes[name], part[name])
    return wholes


def joined(outputs: Sequence[NDArray[Any]], axis: int, blocks: int) -> NDArray[Any]:
    """An activation from its slices on the ranks of a tensor parallel group."""
    if blocks == 1:
        return np.concatenate(outputs, axis)
    cut = [np.split(output, blocks, axis) for output in outputs]
    return np.concatenate([cut[i][b] for b in range(blocks) for i in range(len(outputs))], axis)
