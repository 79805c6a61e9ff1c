"""Layouts of a parameter: how the array of one model becomes that of the other, and back.

A change is a list of words, joined by ``+``, that are applied one after the other:

- ``transpose``: the last two axes in the other order;
- ``reshape``: axes of length one more or less, or several axes merged into one;
- ``interleave:HEADS`` or ``interleave:HEADS:DIMS``: the rows of each head in pairs. Rotary position
  embeddings rotate element i of a head together with element i + DIMS/2 (two halves) or with its
  neighbour (pairs). A model of one kind computes what the other does if the rows of the matrices
  of queries and keys change their order: 0, DIMS/2, 1, DIMS/2 + 1, … DIMS is the number of rotated
  elements of a head, by default all of them;
- ``deinterleave:HEADS[:DIMS]``: the way back;
- ``heads:COUNT``: the first axis as two, one of heads and one of what a head has: (COUNT · n, …) →
  (COUNT, n, …); with a ``transpose`` behind it the matrices of queries of a model that stores one
  matrix (in, out) for each head;
- ``merge:COUNT``: the way back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: A change with sizes: the word, number of heads, and rotated elements of a head.
SIZED = re.compile(r"(interleave|deinterleave):([1-9]\d{0,5})(?::([1-9]\d{0,5}))?")
#: An axis for the heads, and the way back.
HEADS = re.compile(r"(heads|merge):([1-9]\d{0,5})")
#: Rows of a fused matrix that lie in equal groups, see `dualml.parity.models.pieces`.
GROUPS = re.compile(r"groups:([1-9]\d{0,5})")
PLAIN = ("transpose", "reshape")
INVERSE = {
    "interleave": "deinterleave",
    "deinterleave": "interleave",
    "heads": "merge",
    "merge": "heads",
}
Shape = tuple[int, ...]


def is_layout_word(word: str) -> bool:
    """Return whether a word is one change of layout, see the module; any other word is the name of
    a parameter."""
    return word in PLAIN or any(one.fullmatch(word) for one in (SIZED, HEADS))


def invert_change(change: str) -> str:
    """Return the change that undoes ``change``, words joined by ``+``; empty for an empty change.

    Example:
        >>> invert_change("interleave:8+transpose")
        'transpose+deinterleave:8'
    """
    words = []
    for word in reversed(change.split("+") if change else []):
        name, colon, sizes = word.partition(":")
        words.append(INVERSE.get(name, name) + colon + sizes)
    return "+".join(words)


def join_changes(*changes: str) -> str:
    """Return the change that applies several changes one after the other; empty ones are left
    out."""
    return "+".join(filter(None, changes))


def changed_shape(shape: Shape, words: Sequence[str]) -> Shape | None:
    """Return the shape of an array after some words of a change; None if one of them cannot be
    applied. ``reshape`` leaves the shape as it is here."""
    for word in words:
        if word == "transpose":
            if len(shape) < 2:
                return None
            shape = transposed(shape)
        elif HEADS.fullmatch(word) is not None:
            if (split := split_or_merged(shape, word)) is None:
                return None
            shape = split
        elif (sized := SIZED.fullmatch(word)) is not None and (
            not shape or rotated_rows(shape[0], sized) is None
        ):
            return None
    return shape


def transposed(shape: Shape) -> Shape:
    """Return a shape with its last two axes exchanged."""
    return (*shape[:-2], *shape[:-3:-1])


def split_or_merged(shape: Shape, word: str) -> Shape | None:
    """Return a shape after ``heads:COUNT`` or ``merge:COUNT``; None if it does not fit.

    Example:
        >>> split_or_merged((8, 3), "heads:2"), split_or_merged((2, 4, 3), "merge:2")
        ((2, 4, 3), (8, 3))
    """
    name, _, number = word.partition(":")
    count = int(number)
    if name == "heads":
        fits = bool(shape) and shape[0] % count == 0
        return (count, shape[0] // count, *shape[1:]) if fits else None
    return (count * shape[1], *shape[2:]) if len(shape) > 1 and shape[0] == count else None


def rotated_rows(rows: int, sized: re.Match[str]) -> int | None:
    """Return how many rows of each head are permuted; None if the rows do not fit.

    Args:
        rows: number of rows of all heads.
        sized: match of an ``interleave`` or ``deinterleave`` word with `SIZED`.
    """
    heads = int(sized[2])
    if rows % heads:
        return None
    dims = int(sized[3] or rows // heads)
    return dims if dims <= rows // heads and dims % 2 == 0 else None


def permute_rows(array: NDArray[Any], sized: re.Match[str]) -> NDArray[Any]:
    """Return a copy of an array with the rows of each head in the order of an ``interleave`` or
    ``deinterleave`` word; raise `ValueError` if it does not fit.

    Args:
        array: its first axis has the rows of all heads, one head after the other.
        sized: match of the word with `SIZED`.
    """
    dims = rotated_rows(array.shape[0], sized)
    if dims is None:
        raise ValueError(f"{sized[0]} does not fit {array.shape[0]} rows")
    order = np.arange(array.shape[0]).reshape(int(sized[2]), -1)
    rotated = order[:, :dims]
    parts = (2, dims // 2) if sized[1] == "interleave" else (dims // 2, 2)
    order[:, :dims] = rotated.reshape(-1, *parts).swapaxes(1, 2).reshape(rotated.shape)
    permuted: NDArray[Any] = array[order.reshape(-1)]
    return permuted


def shape_before(shape: Shape, words: Sequence[str]) -> Shape:
    """Return the shape that an array must have so that some words, without ``reshape``, lead to
    ``shape``."""
    back = [word for word in invert_change("+".join(words)).split("+") if word]
    found = changed_shape(shape, back)
    assert found is not None, f"{back} of {shape}"  # checked where the map is read
    return found


def apply_words(array: NDArray[Any], words: Sequence[str], shape: Shape) -> NDArray[Any]:
    """Return an array after the words of a change, applied one after the other; raise `ValueError`
    for an unknown word.

    Args:
        shape: the final shape, which ``reshape`` has to reach; not used without that word.
    """
    for i, word in enumerate(words):
        if word == "transpose":
            array = np.ascontiguousarray(array.swapaxes(-1, -2))
        elif word == "reshape":
            array = array.reshape(shape_before(shape, words[i + 1 :]))
        elif (split := HEADS.fullmatch(word) and split_or_merged(array.shape, word)) is not None:
            array = array.reshape(split)
        elif (sized := SIZED.fullmatch(word)) is not None:
            array = permute_rows(array, sized)
        else:
            raise ValueError(f"unknown change {word!r}")
    return array


def can_apply(change: str, array: NDArray[Any], size: int) -> bool:
    """Return whether an array that belongs to a parameter, such as a state, can take the
    parameter's change; others, such as a scalar state, have to stay as they are.

    ``transpose`` needs two axes; other changes need the parameter's number of elements, ``size``,
    and a shape that fits. False for an empty change.
    """
    if change == "transpose":
        return array.ndim >= 2
    if not change or array.size != size:
        return False
    words = change.split("+")
    if words[0] == "reshape":  # what follows applies to the other shape
        return True
    return changed_shape(array.shape, [word for word in words if word != "reshape"]) is not None
