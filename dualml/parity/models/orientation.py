"""Find out from recorded numbers whether a square matrix is stored as (out, in) or as (in, out).

Its shape does not tell. Where both models multiply by it, one product of the recorded inputs does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualml.common.tensor_files import array_shape
from dualml.parity.models.gap import gap
from dualml.parity.models.mapping import match_tensors
from dualml.parity.models.operations import Operation
from dualml.parity.models.pieces import align_pieces
from dualml.parity.models.trace import Trace, array_key
from dualml.parity.models.user_map import ParameterMap

#: Rows of the inputs that are multiplied.
ROWS = 8
#: Relative distance up to which a product is that of the recorded output.
TOLERANCE = 1e-3
OUTPUT_ROWS, INPUT_ROWS = "(out, in)", "(in, out)"


def find_orientations(trace: Trace) -> dict[str, str]:
    """Return name → how a matrix is stored, `OUTPUT_ROWS` or `INPUT_ROWS`, for the trained matrices
    of which an operation of the first step shows it."""
    shapes = {one.name: one.shape for one in trace.tensors if len(one.shape) == 2 and one.trained}
    start = trace.initial_parameters()
    found: dict[str, str] = {}
    outputs = {name: call for call in trace.operations for name in call.output_names()}
    takers: dict[str, list[Operation]] = {}
    for call in trace.operations:
        for name in call.inputs:
            takers.setdefault(name, []).append(call)
    for name, shape in shapes.items():
        for call in weight_users(f"parameter:{name}", takers, outputs):
            way = orientation_in(trace, call, name, shape, start)
            if way:
                found[name] = way
                break
    return found


def weight_users(
    name: str, takers: dict[str, list[Operation]], outputs: dict[str, Operation]
) -> list[Operation]:
    """Return the operations that take the value ``name``, and those that take a result of an
    operation on it alone, such as its transpose.

    Args:
        takers: name of a value → operations that take it.
    """
    direct = takers.get(name, [])
    through = [
        after
        for call in direct
        if len([one for one in call.inputs if not one.startswith("constant:")]) == 1
        for output in call.output_names()
        for after in takers.get(output, [])
    ]
    return [*direct, *through]


def orientation_in(
    trace: Trace,
    call: Operation,
    name: str,
    shape: tuple[int, ...],
    start: Any,
) -> str:
    """Return how a matrix is stored, `OUTPUT_ROWS` or `INPUT_ROWS`, as far as one operation shows
    it by the shapes, or for a square matrix by the numbers, of its inputs and first output; else
    empty.

    Args:
        call: an operation that uses the matrix.
        name, shape: name and shape of the matrix.
        start: initial values by name.
    """
    result = array_key("operation", 1, call.output_names()[0]) if call.outputs else ""
    if result not in trace.arrays:
        return ""
    end = array_shape(trace.arrays, result)
    for given in call.inputs:
        key = array_key("operation", 1, given)
        if len(end) < 2 or key not in trace.arrays:
            continue
        begin = array_shape(trace.arrays, key)
        if begin[:-1] != end[:-1]:
            continue
        lengths = (begin[-1], end[-1])
        ways = ((OUTPUT_ROWS, shape[::-1]), (INPUT_ROWS, shape))
        fits = [way for way, own in ways if own == lengths]
        if len(fits) == 1:
            return fits[0]
        if not fits:
            continue
        # Only for a square matrix are the numbers read: the arrays may lie on a disk.
        x, y = trace.arrays[key], trace.arrays[result]
        if x.dtype.kind == y.dtype.kind == "f" and (way := compare_products(x, y, start[name])):
            return way
    return ""


def compare_products(x: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]) -> str:
    """Return `OUTPUT_ROWS` if ``y`` is the product of ``x`` and the transpose of a square matrix,
    `INPUT_ROWS` if it is that of ``x`` and the matrix itself; empty if it is neither or both. A
    bias, the same in all rows, does not count."""
    rows, results = (one.reshape(-1, one.shape[-1])[:ROWS].astype(np.float64) for one in (x, y))
    if len(rows) < 2:
        return ""
    rows, results = rows[1:] - rows[:1], results[1:] - results[:1]
    distances = {
        OUTPUT_ROWS: gap(rows @ weight.T.astype(np.float64), results),
        INPUT_ROWS: gap(rows @ weight.astype(np.float64), results),
    }
    best = min(distances, key=lambda way: distances[way])
    other = max(distances.values())
    return best if distances[best] < TOLERANCE < other else ""


def pair_by_orientation(
    a: Trace, b: Trace, asked: ParameterMap
) -> dict[str, str | tuple[str, str]]:
    """Return entries of a map for square matrices that were paired as they are but are stored
    transposed, or the other way round, as recorded numbers show; empty if there are none.

    Args:
        asked: the map with which the traces were recorded.
    """
    ways = find_orientations(a), find_orientations(b)
    ours, theirs = align_pieces(a, b)
    tensors: Sequence[Any] = ours.tensors
    shapes = {one.name: one.shape for one in tensors}
    pairing = match_tensors(
        ours.tensors, theirs.tensors, asked, roles=b.roles, guesses=b.guesses, complete=False
    )
    found: dict[str, str | tuple[str, str]] = {}
    for pair in pairing.pairs:
        shape = shapes[pair.a]
        stored = [w.get(n.partition("[")[0]) for w, n in zip(ways, (pair.a, pair.b), strict=True)]
        if len(shape) != 2 or shape[0] != shape[1] or None in stored or "+" in pair.change:
            continue
        change = "" if stored[0] == stored[1] else "transpose"
        if change != pair.change and pair.change in ("", "transpose"):
            found[pair.a] = (pair.b, change) if change else pair.b
    return found
