"""Match the values that two models compute, and find where they stop matching.

Values are matched by their numbers, not by names. An output of one side is *shared* if the other
side computed the same numbers anywhere, in this shape, another shape, or with its axes in another
order. A value inside a fused kernel has no partner and needs none: a value is *unmatched* only if
it is not shared and affects the result of the step without passing through a shared one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from math import hypot, isfinite, prod, sqrt
from operator import itemgetter

import numpy as np

from dualml.common.array_types import Array
from dualml.common.tensor_files import LazyArrays, array_shape
from dualml.parity.models.gap import LARGE, TINY, gap
from dualml.parity.models.operations import TABLE, Operation, is_unknown
from dualml.parity.models.partners import TensorPair
from dualml.parity.models.trace import OUTPUT, Trace, array_key, rounding_unit

#: Arrays of up to this many axes are compared in every order of their axes.
AXES = 5
#: Arrays at a larger relative distance never match, whatever their rounding.
MAX_MATCH_DISTANCE = 1e-3
#: The same in units in the last place, where those of low precision are larger.
LOW_PRECISION_MATCH = 4
#: Scores at or below it are masked; minus infinity and large negative numbers count as equal.
MASKED = -1e4


@dataclass
class ValueIndex:
    """An index of named arrays that finds an array by its numbers.

    Attributes:
        arrays: name → array; those that were added with ``read`` are read anew at every look-up.
        widths: name → relative distance that rounding may move the array.
        by_size: number of elements → (norm, sum, position, name) of each array, sorted by norm.
        max_width: number of elements → the largest width among these arrays.
        unread: number of elements → name and reader of large arrays that are not in ``by_size``
            yet.
    """

    arrays: LazyArrays = field(default_factory=LazyArrays)
    widths: Mapping[str, float] = field(default_factory=dict)
    by_size: dict[int, list[tuple[float, float, int, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    max_width: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    unread: dict[int, list[tuple[str, Callable[[], Array]]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, name: str, array: Array, read: Callable[[], Array] | None = None) -> None:
        """Add an array to the index; an empty one, or one that holds no numbers, is ignored.

        Args:
            read: returns the array when it is needed; then the index does not keep it in memory.
        """
        if array.dtype.kind not in "fiub" or not array.size:
            return
        array, size = unify_masked(array), array.size
        insort(self.by_size[size], (*norms(array), len(self.arrays), name))
        recall = partial(keep_array, array) if read is None else partial(read_unified, read)
        self.arrays.add(name, array.shape, recall)
        self.max_width[size] = max(self.max_width[size], self.widths.get(name, 0.0))

    def add_later(self, name: str, shape: tuple[int, ...], read: Callable[[], Array]) -> None:
        """Add a large array whose numbers are read when an array of its size is looked for."""
        self.unread[prod(shape)].append((name, read))
        self.arrays.add(name, shape, partial(read_unified, read))

    def find(self, array: Array, tolerance: float) -> str | None:
        """Return the name of the last added array with these numbers, see `same_values`; None if
        there is none.

        Args:
            tolerance: relative distance, see `dualml.common.distance`; the larger of this and the
                found array's own width counts.
        """
        for name, read in self.unread.pop(array.size, ()):
            self.add(name, read(), read)
        if array.dtype.kind not in "fiub" or array.size not in self.by_size:
            return None
        array, rows = unify_masked(array), self.by_size[array.size]
        size, total = norms(array)
        # Norms differ by no more than the arrays themselves.
        most = max(tolerance, self.max_width[array.size])
        low = bisect_left(rows, (size - most * size,))
        high = len(rows) if most >= 1 else bisect_left(rows, (size / (1 - most) + TINY,))
        near = rows[low:high]
        near.sort(key=itemgetter(2), reverse=True)
        for other, other_total, _, name in near:
            allowed = max(tolerance, self.widths.get(name, 0.0))
            large = max(size, other)
            if abs(size - other) > allowed * large or not (
                abs(total - other_total) <= allowed * large * array.size**0.5
            ):
                continue
            if same_values(array, self.arrays[name], allowed):
                return name
        return None


def keep_array(array: Array) -> Array:
    """Return the given array unchanged; a reader for an array that is kept in memory."""
    return array


def read_unified(read: Callable[[], Array]) -> Array:
    """Call ``read`` and return its array, with masked scores unified, see `unify_masked`."""
    return unify_masked(read())


def unify_masked(array: Array) -> Array:
    """Return the array with scores of at most `MASKED`, which mask others in attention, replaced by
    minus infinity; unchanged if there are none, if all are, or if it holds no floats."""
    if array.dtype.kind != "f" or not array.min(initial=0.0) <= MASKED:
        return array
    low = array <= MASKED
    return array if low.all() else np.where(low, -np.inf, array)


def norms(array: Array) -> tuple[float, float]:
    """Return the Euclidean norm and the sum of absolute values, which do not depend on element
    order. Infinities and NaNs are left out."""
    if array.size > LARGE:
        flat = array.reshape(-1)
        parts = [norms(flat[at : at + LARGE]) for at in range(0, flat.size, LARGE)]
        return hypot(*(norm for norm, _ in parts)), sum(total for _, total in parts)
    values = np.abs(array.ravel().astype(np.float64))
    square = float(values @ values)
    if not isfinite(square):  # masks hold infinities
        values = values[np.isfinite(values)]
        square = float(values @ values)
    return sqrt(square), float(values.sum())


def same_values(a: Array, b: Array, tolerance: float) -> bool:
    """Return whether two arrays of one size hold the same numbers up to a relative distance, in any
    shape and any order of axes.

    Only floats of up to `AXES` axes (axes of length 1 not counted) are reordered: indices and masks
    are often symmetric.
    """
    flat = a.ravel()
    if gap(flat, b.ravel()) <= tolerance:
        return True
    if a.dtype.kind != "f" or b.dtype.kind != "f":
        return False
    x, y = a.squeeze(), b.squeeze()
    if x.ndim != y.ndim or not 1 < x.ndim <= AXES:
        return False
    return any(
        tuple(x.shape[i] for i in order) == y.shape and gap(x.transpose(order), y) <= tolerance
        for order in permutations(range(x.ndim))
        if order != tuple(range(x.ndim))
    )


@dataclass
class TraceOperand:
    """The operations (calls of framework functions) of one side, with their values and matches.

    Attributes:
        operations: the calls of the first step, in order.
        arrays: name of a value → array.
        final_values: names of the values that leave the step: outputs and loss.
        shared: name of a value → its partner on the other side.
        values: index of outputs, inputs and parameters.
        tables: names of arrays that nothing computes and no optimizer changes.
        consumers: name of a value → numbers of the operations that take it.
    """

    operations: Sequence[Operation]
    arrays: Mapping[str, Array]
    final_values: frozenset[str]
    shared: dict[str, str] = field(default_factory=dict)
    values: ValueIndex = field(default_factory=ValueIndex)
    tables: frozenset[str] = frozenset()
    consumers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for operation in self.operations:
            for name in operation.inputs:
                self.consumers[name].append(operation.number)

    def input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name → shape of the step's inputs."""
        names = (name for name in self.arrays if name.startswith("input:"))
        return {name: array_shape(self.arrays, name) for name in names}

    def unmatched(self) -> set[str]:
        """Return the names of recorded outputs of operations that are not shared and reach a final
        value without passing a shared one."""
        lost: set[str] = set()
        leads: dict[int, bool] = {}
        # A call that takes a value of unknown origin may depend on anything before.
        last = max(
            (x.number for x in self.operations if any(map(is_unknown, x.inputs))), default=-1
        )
        for operation in reversed(self.operations):
            leads[operation.number] = False
            for name in operation.output_names():
                if name in self.shared or name not in self.arrays:
                    continue
                takers = self.consumers.get(name, ())
                data = any(not n.startswith(("parameter:", "constant:")) for n in operation.inputs)
                onward = any(leads[number] for number in takers) or (
                    not takers and data and operation.number < last and "[" not in name
                )
                if name in self.final_values or onward:
                    lost.add(name)
                    leads[operation.number] = True
        return lost

    def origins(self, unmatched: set[str]) -> list[Operation]:
        """Return the operations with an output among ``unmatched`` and no input among it, in order.

        Those that compute with constants alone come last, because the two sides may store constants
        in different forms (angles, sines, pairs).
        """
        fixed = self.constants()
        moving = unmatched - fixed
        return [
            one
            for names in (moving, unmatched & fixed)
            for one in self.operations
            if not names.isdisjoint(one.output_names()) and names.isdisjoint(one.inputs)
        ]

    def constants(self) -> set[str]:
        """Return the names of values computed from constants, tables and values of unknown origin
        alone: from no recorded input, no parameter and no buffer."""
        fixed: set[str] = set()
        for one in self.operations:
            if all(n in fixed or is_unknown(n) or n.startswith("constant:") for n in one.inputs):
                fixed.update(one.output_names())
        return fixed


def make_operand(trace: Trace, margin: float) -> TraceOperand:
    """Return the operations and values of a trace's first step, not matched yet.

    Args:
        margin: how many rounding envelopes apart values still match.
    """
    arrays = LazyArrays()
    for name in trace.names("operation", 1):
        key = array_key("operation", 1, name)
        arrays.add(name, array_shape(trace.arrays, key), partial(trace.arrays.__getitem__, key))
    buffers = {f"parameter:{one.name}" for one in trace.tensors if not one.trained}
    tables = frozenset({*buffers, *(name for name in arrays if name.startswith(TABLE))})
    values = index_values(trace, margin)
    return TraceOperand(
        trace.operations, arrays, graph_outputs(trace, arrays), values=values, tables=tables
    )


def graph_outputs(trace: Trace, arrays: LazyArrays) -> frozenset[str]:
    """Return the names of operations' outputs that leave the step: for each output of the model and
    the loss, the last one with the same numbers; the last operation's output if there is none."""
    finals = [
        trace.find_array("forward", 1, name)
        for name in trace.names("forward", 1)
        if name.startswith(OUTPUT)
    ]
    finals.append(trace.find_array("loss", 1, "loss"))
    last = set()
    for final in finals:
        if final is None:
            continue
        for name in reversed(list(arrays)):
            if prod(arrays.shape(name)) == final.size and np.array_equal(
                arrays[name].ravel().astype(np.float64),
                final.ravel().astype(np.float64),
                equal_nan=True,
            ):
                last.add(name)
                break
    if not last and trace.operations:
        last.add(trace.operations[-1].output_names()[0])
    return frozenset(last)


def index_values(trace: Trace, margin: float, names: Iterable[str] | None = None) -> ValueIndex:
    """Return an index of the values of a trace's first step.

    Args:
        margin: how many rounding envelopes apart values still match.
        names: names of operations' values to index; None: all of them, and the initial parameters.
    """
    unit = rounding_unit(trace)
    largest = max(MAX_MATCH_DISTANCE, LOW_PRECISION_MATCH * unit)
    widths = {
        n: min(margin * max(trace.envelope_width("operation", 1, n), unit), largest)
        for n in trace.names("operation", 1)
    }
    values = ValueIndex(widths=widths)
    if names is None:
        start = trace.initial_parameters()
        for name in start:
            add_value(values, f"parameter:{name}", trace, array_key("parameters", 0, name))
    for name in trace.names("operation", 1) if names is None else names:
        key = array_key("operation", 1, name)
        if key in trace.arrays:
            add_value(values, name, trace, key)
    return values


def add_value(values: ValueIndex, name: str, trace: Trace, key: str) -> None:
    """Add the array with this key of a trace to an index, under ``name``. If the trace is on the
    disk, the array is not kept in memory, and a large parameter is only read when it is looked
    for."""
    if not isinstance(trace.arrays, LazyArrays):
        values.add(name, trace.arrays[key])
        return
    read, shape = partial(trace.arrays.__getitem__, key), trace.arrays.shape(key)
    if key.startswith("parameters/") and prod(shape) > LARGE:
        values.add_later(name, shape, read)
    else:
        values.add(name, read(), read)


def match_values(
    a: Trace, b: Trace, margin: float, pairs: Sequence[TensorPair] = ()
) -> tuple[TraceOperand, TraceOperand]:
    """Return the operations of both sides in the first step, with ``shared`` filled: each value
    that the other side computed as well → its name there.

    Args:
        margin: how many rounding envelopes apart values still match.
        pairs: parameters whose initial values are known to be equal.
    """
    here, there = make_operand(a, margin), make_operand(b, margin)
    partners = {f"parameter:{pair.a}": f"parameter:{pair.b}" for pair in pairs}
    back = {y: x for x, y in partners.items()}
    for side, other, known in ((here, there, partners), (there, here, back)):
        unread = {name for rows in side.values.unread.values() for name, _ in rows}
        for name in side.values.arrays:
            if name in unread and name in known:  # large parameters
                side.shared[name] = known[name]
                continue
            width = side.values.widths.get(name, 0.0)
            partner = other.values.find(side.values.arrays[name], width)
            if partner is not None:
                side.shared[name] = partner
    return here, there
