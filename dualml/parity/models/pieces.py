"""One tensor here, several there: a matrix that holds those of queries, keys and values.

Where one side has tensors of k times the length and the other k times as many more of the rest, the
long ones are cut along their first axis, and their pieces are compared as tensors of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.parity.models.partners import Tensor
from dualml.parity.models.trace import Arrays, Trace

#: Into so many pieces at most: the gates of an LSTM.
MOST = 4
#: Phases whose arrays are named like parameters, alone or behind a slot.
PHASES = ("parameters", "gradient", "update", "state")
Cuts = Mapping[str, int]


def cuts(a: Sequence[Tensor], b: Sequence[Tensor]) -> tuple[dict[str, int], dict[str, int]]:
    """For each side, name → number of pieces.

    Example:
        >>> names = "q", "k", "v"
        >>> cuts([Tensor("qkv", (12, 4))], [Tensor(name, (4, 4)) for name in names])
        ({'qkv': 3}, {})
    """
    return one_side(a, b), one_side(b, a)


def one_side(a: Sequence[Tensor], b: Sequence[Tensor]) -> dict[str, int]:
    def counted(side: Sequence[Tensor]) -> Counter[tuple[int, ...]]:
        return Counter(one.shape for one in side if one.trained and one.shape)

    of_a, of_b = counted(a), counted(b)
    parts: dict[str, int] = {}
    for shape, n in of_a.items():
        for k in range(2, MOST + 1):
            piece = (shape[0] // k, *shape[1:])
            if shape[0] % k or of_b[shape] or of_b[piece] - of_a[piece] != k * n:
                continue
            parts |= {one.name: k for one in a if one.trained and one.shape == shape}
    return parts


def pieces(name: str, k: int) -> list[str]:
    return [f"{name}[{i}]" for i in range(k)]


def cut_tensors(tensors: Sequence[Tensor], of: Cuts) -> list[Tensor]:
    return [
        part
        for one in tensors
        for part in (
            [
                replace(one, name=name, shape=(one.shape[0] // of[one.name], *one.shape[1:]))
                for name in pieces(one.name, of[one.name])
            ]
            if one.name in of
            else [one]
        )
    ]


def cut_arrays(arrays: Mapping[str, NDArray[Any]], of: Cuts) -> Arrays:
    """Of arrays by name, ``SLOT/NAME`` or ``PHASE/STEP/NAME``."""
    result: Arrays = {}
    for key, value in arrays.items():
        head, slash, name = key.rpartition("/")
        if name not in of or not value.ndim or (head and head.partition("/")[0] not in PHASES):
            result[key] = value
            continue
        parts = np.split(value, of[name]) if value.shape[0] % of[name] == 0 else [value] * of[name]
        result |= dict(zip((head + slash + n for n in pieces(name, of[name])), parts, strict=True))
    return result


def joined(arrays: Mapping[str, NDArray[Any]], of: Cuts) -> Arrays:
    """The way back, where all pieces are there."""
    result = dict(arrays)
    for name, k in of.items():
        parts = [result.pop(part, None) for part in pieces(name, k)]
        whole = [part for part in parts if part is not None]
        if len(whole) == k:
            result[name] = np.concatenate(whole)
    return result


def in_same_pieces(a: Trace, b: Trace) -> tuple[Trace, Trace]:
    """Both traces with the same tensors, as far as cutting goes."""
    of_a, of_b = cuts(a.tensors, b.tensors)
    return cut_trace(a, of_a), cut_trace(b, of_b)


def cut_trace(trace: Trace, of: Cuts) -> Trace:
    if not of:
        return trace
    widths = trace.envelope
    if widths is not None:
        widths = dict(widths)
        for key, width in (trace.envelope or {}).items():
            head, slash, name = key.rpartition("/")
            if name in of and key.partition("/")[0] in PHASES:
                widths |= {head + slash + part: width for part in pieces(name, of[name])}
    return replace(
        trace,
        tensors=cut_tensors(trace.tensors, of),
        arrays=cut_arrays(trace.arrays, of),
        envelope=widths,
    )
