"""Split fused tensors: one side may store a single tensor where the other has several.

Examples are a matrix that holds those of queries, keys and values, and a table of users and items.

If one side has a tensor of k times the length and the other has k tensors for it, or consecutive
tensors in the other's list are together as long, the long tensor is cut along its first axis and
its pieces are compared as separate tensors. A matrix that is stored as (in, out) is cut along its
second axis. The user's map may say which pieces, and that the rows lie in groups: queries, keys and
values of the first heads, then those of the next ones.
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
from dualml.parity.models.module_runs import find_module_runs
from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import Trace

#: Maximum number of pieces of a parameter: the gates of an LSTM.
MAX_PIECES = 4
#: Phases whose arrays are named like parameters, alone or behind a slot.
PHASES = ("parameters", "gradient", "update", "state")
#: Name → lengths of its pieces.
Cuts = Mapping[str, tuple[int, ...]]


class PieceLengths(tuple[int, ...]):
    """Lengths of the pieces of a fused tensor whose rows lie in equal groups; each group has some
    rows of every piece, in order.

    Attributes:
        groups: number of groups; 1 for pieces that lie one behind the other.
        axis: 1 if columns are meant instead of rows.
    """

    groups: int = 1
    axis: int = 0

    @classmethod
    def from_lengths(cls, lengths: Sequence[int], groups: int, axis: int = 0) -> PieceLengths:
        """Return the lengths of pieces, for a tensor whose rows lie in ``groups`` equal groups, cut
        along axis ``axis``."""
        made = cls(lengths)
        made.groups, made.axis = groups, axis
        return made


def group_count(lengths: Sequence[int]) -> int:
    """Return in how many groups the rows of a fused tensor lie, from the lengths of its pieces; 1
    unless they are `PieceLengths`."""
    return lengths.groups if isinstance(lengths, PieceLengths) else 1


def cut_axis(lengths: Sequence[int]) -> int:
    """Return along which axis a fused tensor is cut, from the lengths of its pieces; 0 unless they
    are `PieceLengths`."""
    return lengths.axis if isinstance(lengths, PieceLengths) else 0


def piece_shape(shape: tuple[int, ...], lengths: Sequence[int], number: int) -> tuple[int, ...]:
    """Return the shape of piece ``number``, from 0, of a fused tensor of this shape."""
    axis = cut_axis(lengths)
    return (*shape[:axis], lengths[number], *shape[axis + 1 :])


def is_whole_tensor(shape: tuple[int, ...], lengths: Sequence[int]) -> bool:
    """Return whether an array of this shape has the sum of the pieces' lengths along the cut axis,
    so that it can be cut."""
    axis = cut_axis(lengths)
    return axis < len(shape) and shape[axis] == sum(lengths)


def find_cuts(
    a: Sequence[Tensor], b: Sequence[Tensor]
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Return for side ``a`` and side ``b``: name of a trained tensor to cut so that it matches
    smaller tensors of the other side → lengths of its pieces.

    Example:
        >>> names = "q", "k", "v"
        >>> find_cuts([Tensor("qkv", (12, 4))], [Tensor(name, (4, 4)) for name in names])
        ({'qkv': (4, 4, 4)}, {})
        >>> find_cuts([Tensor("all", (7, 4))], [Tensor("users", (5, 4)), Tensor("items", (2, 4))])
        ({'all': (5, 2)}, {})
    """
    return cuts_of_side(a, b), cuts_of_side(b, a)


def count_shapes(side: Sequence[Tensor]) -> Counter[tuple[int, ...]]:
    """Return shape → number of trained tensors that have it; scalars are left out."""
    return Counter(one.shape for one in side if one.trained and one.shape)


def cuts_of_side(a: Sequence[Tensor], b: Sequence[Tensor]) -> dict[str, tuple[int, ...]]:
    """Return name → lengths of the pieces into which the trained tensors of ``a`` have to be cut
    so that they match those of ``b``: along the first axis, or along the second where the
    lengths are `PieceLengths` of axis 1 (see `cut_axis`). Tensors that stay whole are left out."""
    of_a, of_b = count_shapes(a), count_shapes(b)
    parts: dict[str, tuple[int, ...]] = {}
    for shape, n in of_a.items():
        for k in range(2, MAX_PIECES + 1):
            piece = (shape[0] // k, *shape[1:])
            if shape[0] % k or of_b[shape] or of_b[piece] - of_a[piece] != k * n:
                continue
            lengths = (piece[0],) * k
            parts |= {one.name: lengths for one in a if one.trained and one.shape == shape}
    parts |= column_cuts([one for one in a if one.name not in parts], b, of_a, of_b)
    rest = [one for one in a if one.name not in parts]
    taken = Counter(
        piece_shape(one.shape, parts[one.name], i)
        for one in a
        if one.name in parts
        for i in range(len(parts[one.name]))
    )
    left = []
    for one in b:
        taken[one.shape] -= 1
        left += [one] if taken[one.shape] < 0 else []
    return parts | uneven_cuts(rest, left)


def column_cuts(
    a: Sequence[Tensor],
    b: Sequence[Tensor],
    of_a: Counter[tuple[int, ...]],
    of_b: Counter[tuple[int, ...]],
) -> dict[str, tuple[int, ...]]:
    """Return name → lengths of the pieces along the second axis, for matrices of ``a`` that are
    stored as (in, out): with k times as many columns as k matrices of ``b``, of whose shape ``b``
    has k more for each of them.

    Args:
        of_a, of_b: number of trained tensors of each shape, of all tensors of both sides.
    """
    parts: dict[str, tuple[int, ...]] = {}
    for shape, n in count_shapes(a).items():
        for k in range(2, MAX_PIECES + 1):
            if len(shape) != 2 or shape[1] % k or of_b[shape] or of_b[shape[::-1]]:
                continue
            piece = (shape[0], shape[1] // k)
            ways = {piece, piece[::-1]}  # either way if it is no square
            if sum(of_b[way] - of_a[way] for way in ways) != k * n:
                continue
            lengths = PieceLengths.from_lengths((piece[1],) * k, 1, 1)
            parts |= {one.name: lengths for one in a if one.trained and one.shape == shape}
    return parts


def uneven_cuts(a: Sequence[Tensor], b: Sequence[Tensor]) -> dict[str, tuple[int, ...]]:
    """Return name → lengths of the pieces, for tensors of ``a`` to cut into pieces of different
    lengths.

    These are long tensors of shapes that ``b`` does not have, each with consecutive tensors of
    ``b`` (up to `MAX_PIECES`) that have the same total length.
    """
    of_a, of_b = count_shapes(a), count_shapes(b)
    parts: dict[str, tuple[int, ...]] = {}
    fused = tensors_of_other_shapes(a, of_a, of_b)
    taken: set[str] = set()
    for shape in dict.fromkeys(one.shape for one in fused):
        same = [one for one in fused if one.shape == shape]
        found = find_module_runs(shape, b, MAX_PIECES)
        if len(found) == len(same):
            for one, members in zip(same, found, strict=True):
                parts[one.name] = tuple(piece.shape[0] for piece in members)
                taken |= {piece.name for piece in members}
    long = [one for one in fused if len(one.shape) > 1 and one.name not in parts]
    lone = [one for one in tensors_of_other_shapes(b, of_b, of_a) if one.name not in taken]
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
    """Return the trained tensors of ``side`` whose shape the other side does not have, nor
    transposed, unless this side has as many transposed ones itself; scalars are left out.

    Args:
        own, other: number of trained tensors of each shape on this side and the other.
    """

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
    """Return a new list with each fused tensor replaced by its pieces, named as in
    `piece_names`."""
    return [
        part
        for one in tensors
        for part in (
            [
                replace(
                    one,
                    name=name,
                    shape=piece_shape(one.shape, cuts_by_name[one.name], i),
                    is_column_piece=cut_axis(cuts_by_name[one.name]) == 1,
                )
                for i, name in enumerate(piece_names(one.name, cuts_by_name[one.name]))
            ]
            if one.name in cuts_by_name
            else [one]
        )
    ]


def cut_arrays(arrays: Mapping[str, NDArray[Any]], cuts_by_name: Cuts) -> LazyArrays:
    """Return the arrays with each fused tensor split, read and cut only when asked for; keys are
    ``NAME`` or ``PHASE/…/NAME`` with a phase of `PHASES`, others stay whole. An array of another
    length goes whole to every piece."""
    result = LazyArrays()
    for key in arrays:
        head, slash, name = key.rpartition("/")
        shape, read = array_shape(arrays, key), partial(arrays.__getitem__, key)
        if name not in cuts_by_name or not shape or (head and head.partition("/")[0] not in PHASES):
            result.add(key, shape, read)
            continue
        lengths = cuts_by_name[name]
        for i, part in enumerate(piece_names(name, lengths)):
            if is_whole_tensor(shape, lengths):
                piece = partial(read_piece, read, lengths, i)
                result.add(head + slash + part, piece_shape(shape, lengths, i), piece)
            else:
                result.add(head + slash + part, shape, read)
    return result


def read_piece(
    read: Callable[[], NDArray[Any]], lengths: Sequence[int], number: int
) -> NDArray[Any]:
    """Read a fused tensor and return piece ``number``, from 0: its rows, or its columns if it is
    cut along axis 1."""
    array, groups, start = read(), group_count(lengths), sum(lengths[:number])
    end = start + lengths[number]
    if cut_axis(lengths):
        return array[:, start:end]
    if groups == 1:
        return array[start:end]
    rows = array.reshape(groups, -1, *array.shape[1:])[:, start // groups : end // groups]
    piece: NDArray[Any] = rows.reshape(lengths[number], *array.shape[1:])
    return piece


def join_pieces(arrays: Mapping[str, NDArray[Any]], cuts_by_name: Cuts) -> LazyArrays:
    """Return the arrays by name with pieces joined to fused tensors, read only when asked for. If
    some piece of a tensor is missing, the tensor and its other pieces are left out."""
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
            whole = (sum(lengths),)
            shape = piece_shape(
                shapes[0], PieceLengths.from_lengths(whole, 1, cut_axis(lengths)), 0
            )
            result.add(name, shape, partial(read_joined, arrays, parts, lengths))
    return result


def read_joined(
    arrays: Mapping[str, NDArray[Any]], parts: Sequence[str], lengths: Sequence[int]
) -> NDArray[Any]:
    """Read the arrays ``parts`` and return them joined to the fused tensor that has pieces of these
    lengths."""
    pieces, groups = [arrays[part] for part in parts], group_count(lengths)
    if groups == 1:
        return np.concatenate(pieces, axis=cut_axis(lengths))
    rows = [piece.reshape(groups, -1, *piece.shape[1:]) for piece in pieces]
    joined: NDArray[Any] = np.concatenate(rows, axis=1).reshape(-1, *pieces[0].shape[1:])
    return joined


def align_pieces(a: Trace, b: Trace) -> tuple[Trace, Trace]:
    """Return both traces with fused tensors cut so that they match: as ``b.cuts`` says if it is not
    empty, else as the shapes do."""
    of_a: Cuts
    of_b: Cuts
    if b.cuts:
        of_a, of_b = ({n: read_cut(cut) for n, cut in side.items()} for side in b.cuts)
    else:
        of_a, of_b = find_cuts(a.tensors, b.tensors)
    return cut_trace(a, of_a), cut_trace(b, of_b)


def describe_cut(lengths: Sequence[int]) -> list[int]:
    """Return ``[number of groups, axis, length, length, …]``, which can be stored as JSON and read
    by `read_cut`."""
    return [group_count(lengths), cut_axis(lengths), *lengths]


def read_cut(described: Sequence[int]) -> PieceLengths:
    """Return the lengths of pieces from what `describe_cut` returned."""
    return PieceLengths.from_lengths(described[2:], described[0], described[1])


def cut_trace(trace: Trace, cuts_by_name: Cuts) -> Trace:
    """Return a trace with its fused tensors cut in the list of tensors, the arrays and the
    envelope; the trace itself if there is nothing to cut."""
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
