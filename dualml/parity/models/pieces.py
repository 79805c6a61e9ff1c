"""Split fused tensors: one side may store a single tensor where the other has several.

Examples are a matrix that holds those of queries, keys and values, and a table of users and items.

If one side has a tensor of k times the length and the other has k tensors for it, or consecutive
tensors in the other's list are together as long, the long tensor is cut along its first axis and
its pieces are compared as separate tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.tensor_files import LazyArrays, array_shape
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import Trace

#: Maximum number of pieces of a parameter: the gates of an LSTM.
MAX_PIECES = 4
#: Phases whose arrays are named like parameters, alone or behind a slot.
PHASES = ("parameters", "gradient", "update", "state")
#: Name → lengths of its pieces.
Cuts = Mapping[str, tuple[int, ...]]


def find_cuts(
    a: Sequence[Tensor], b: Sequence[Tensor]
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Return for each side: name of a tensor to cut → lengths of its pieces.

    Example:
        >>> names = "q", "k", "v"
        >>> find_cuts([Tensor("qkv", (12, 4))], [Tensor(name, (4, 4)) for name in names])
        ({'qkv': (4, 4, 4)}, {})
        >>> find_cuts([Tensor("all", (7, 4))], [Tensor("users", (5, 4)), Tensor("items", (2, 4))])
        ({'all': (5, 2)}, {})
    """
    return cuts_of_side(a, b), cuts_of_side(b, a)


def count_shapes(side: Sequence[Tensor]) -> Counter[tuple[int, ...]]:
    """Count the trained tensors of each shape."""
    return Counter(one.shape for one in side if one.trained and one.shape)


def cuts_of_side(a: Sequence[Tensor], b: Sequence[Tensor]) -> dict[str, tuple[int, ...]]:
    """Return name → lengths of the pieces, of the tensors of ``a`` to cut so that they match those
    of ``b``; tensors that stay whole are left out."""
    of_a, of_b = count_shapes(a), count_shapes(b)
    parts: dict[str, tuple[int, ...]] = {}
    for shape, n in of_a.items():
        for k in range(2, MAX_PIECES + 1):
            piece = (shape[0] // k, *shape[1:])
            if shape[0] % k or of_b[shape] or of_b[piece] - of_a[piece] != k * n:
                continue
            lengths = (piece[0],) * k
            parts |= {one.name: lengths for one in a if one.trained and one.shape == shape}
    rest = [one for one in a if one.name not in parts]
    taken = Counter(
        (length, *one.shape[1:]) for one in a if one.name in parts for length in parts[one.name]
    )
    left = []
    for one in b:
        taken[one.shape] -= 1
        left += [one] if taken[one.shape] < 0 else []
    return parts | uneven_cuts(rest, left)


def uneven_cuts(a: Sequence[Tensor], b: Sequence[Tensor]) -> dict[str, tuple[int, ...]]:
    """Return name → lengths of the pieces, of tensors of ``a`` to cut into pieces of different
    lengths.

    These are long tensors that the other side does not have, each with a run of the other side's
    tensors that has the same total length.
    """
    of_a, of_b = count_shapes(a), count_shapes(b)
    parts: dict[str, tuple[int, ...]] = {}
    long = [one for one in tensors_of_other_shapes(a, of_a, of_b) if len(one.shape) > 1]
    lone = tensors_of_other_shapes(b, of_b, of_a)
    for tail in dict.fromkeys(one.shape[1:] for one in long):
        waiting = [one for one in long if one.shape[1:] == tail]
        short = [one.shape[0] for one in lone if one.shape[1:] == tail]
        for one in waiting:
            runs = (
                (start, end)
                for start in range(len(short))
                for end in range(start + 2, min(start + MAX_PIECES, len(short)) + 1)
                if sum(short[start:end]) == one.shape[0]
            )
            if (run := next(runs, None)) is not None:
                parts[one.name] = tuple(short[slice(*run)])
                del short[slice(*run)]
    return parts


def tensors_of_other_shapes(
    side: Sequence[Tensor], own: Counter[tuple[int, ...]], other: Counter[tuple[int, ...]]
) -> list[Tensor]:
    """Return trained tensors of shapes that the other side does not have, transposed shapes
    included."""

    def count_either_way(shapes: Counter[tuple[int, ...]], shape: tuple[int, ...]) -> int:
        """Return how many tensors have this shape or its transpose."""
        return shapes[shape] + (shapes[shape[::-1]] if shape != shape[::-1] else 0)

    return [
        one
        for one in side
        if one.trained
        and one.shape
        and not other[one.shape]
        and count_either_way(own, one.shape) - count_either_way(other, one.shape) >= own[one.shape]
    ]


def piece_names(name: str, lengths: Sequence[int]) -> list[str]:
    """Return the names of a tensor's pieces, ``NAME[0]``, ``NAME[1]``, …"""
    return [f"{name}[{i}]" for i in range(len(lengths))]


def cut_tensors(tensors: Sequence[Tensor], cuts_by_name: Cuts) -> list[Tensor]:
    """Return the list with each fused tensor replaced by its pieces."""
    return [
        part
        for one in tensors
        for part in (
            [
                replace(one, name=name, shape=(length, *one.shape[1:]))
                for name, length in zip(
                    piece_names(one.name, cuts_by_name[one.name]),
                    cuts_by_name[one.name],
                    strict=True,
                )
            ]
            if one.name in cuts_by_name
            else [one]
        )
    ]


def cut_arrays(arrays: Mapping[str, NDArray[Any]], cuts_by_name: Cuts) -> LazyArrays:
    """Return the arrays with each fused tensor split; names are ``SLOT/NAME`` or
    ``PHASE/STEP/NAME``. An array of another length goes whole to every piece."""
    result = LazyArrays()
    for key in arrays:
        head, slash, name = key.rpartition("/")
        shape, read = array_shape(arrays, key), partial(arrays.__getitem__, key)
        if name not in cuts_by_name or not shape or (head and head.partition("/")[0] not in PHASES):
            result.add(key, shape, read)
            continue
        lengths, start = cuts_by_name[name], 0
        for part, length in zip(piece_names(name, lengths), lengths, strict=True):
            if shape[0] == sum(lengths):
                rows = partial(read_rows, read, start, start + length)
                result.add(head + slash + part, (length, *shape[1:]), rows)
            else:
                result.add(head + slash + part, shape, read)
            start += length
    return result


def read_rows(read: Callable[[], NDArray[Any]], start: int, end: int) -> NDArray[Any]:
    """Read an array and return some of its rows, ``start`` … ``end`` − 1."""
    return read()[start:end]


def join_pieces(arrays: Mapping[str, NDArray[Any]], cuts_by_name: Cuts) -> LazyArrays:
    """Return the arrays with pieces joined to fused tensors; a tensor without all of its pieces is
    left out, with those it has."""
    fused = {part: n for n, ways in cuts_by_name.items() for part in piece_names(n, ways)}
    result = LazyArrays()
    for name in arrays:
        if name not in fused:
            read = partial(arrays.__getitem__, name)
            result.add(name, array_shape(arrays, name), read)
    for name, lengths in cuts_by_name.items():
        parts = piece_names(name, lengths)
        if all(part in arrays for part in parts):
            shapes = [array_shape(arrays, part) for part in parts]
            shape = (sum(one[0] for one in shapes), *shapes[0][1:])
            result.add(name, shape, partial(read_joined, arrays, parts))
    return result


def read_joined(arrays: Mapping[str, NDArray[Any]], parts: Sequence[str]) -> NDArray[Any]:
    """Read some arrays and return them joined along their first axis."""
    return np.concatenate([arrays[part] for part in parts])


def align_pieces(a: Trace, b: Trace) -> tuple[Trace, Trace]:
    """Return both traces with fused tensors cut so that they match."""
    of_a, of_b = find_cuts(a.tensors, b.tensors)
    return cut_trace(a, of_a), cut_trace(b, of_b)


def cut_trace(trace: Trace, cuts_by_name: Cuts) -> Trace:
    """Return a trace with its fused tensors cut, including arrays and envelope."""
    if not cuts_by_name:
        return trace
    widths = trace.envelope
    if widths is not None:
        widths = dict(widths)
        for key, width in (trace.envelope or {}).items():
            head, slash, name = key.rpartition("/")
            if name in cuts_by_name and key.partition("/")[0] in PHASES:
                widths |= {
                    head + slash + part: width for part in piece_names(name, cuts_by_name[name])
                }
    return replace(
        trace,
        tensors=cut_tensors(trace.tensors, cuts_by_name),
        arrays=cut_arrays(trace.arrays, cuts_by_name),
        envelope=widths,
    )
