"""Recognize errors that come from another floating-point type on one side, and say where it begins.

A layer may ignore the type that it is asked for. All numbers agree up to the rounding of the lower
type, until a product of two types is refused: the device has no kernel for it.
"""

from __future__ import annotations

import re

from dualml.experiment.comparison import Note
from dualml.parity.diffs.lookup import entries_for_types
from dualml.parity.models.gap import TensorDistance
from dualml.parity.models.layers import module_name
from dualml.parity.models.trace import LOW_PRECISION_UNITS
from dualml.parity.models.trace_comparison import TraceComparison

TYPE_ERROR = re.compile(
    r"type of '\w+' should be same as|(have|be) the same (data ?)?d?type|expected scalar type"
)


def is_type_error(raised: str) -> bool:
    """Return whether an error says that the operands of a function have two types."""
    return TYPE_ERROR.search(raised) is not None


def type_notes(pair: TraceComparison) -> list[Note]:
    """Return a note about the first module whose outputs have two floating-point types in the last
    step, and one for each entry in the catalogue of known differences about it; empty if there is
    no such module."""
    step = pair.last_step
    known = set(pair.b.names("forward", step))
    for name in pair.a.names("forward", step):
        other = pair.partner_name(name, known)
        x = pair.a.find_array("forward", step, name)
        y = None if other is None else pair.b.find_array("forward", step, other)
        if x is None or y is None or x.dtype == y.dtype or {x.dtype.kind, y.dtype.kind} != {"f"}:
            continue
        a, b = pair.sides
        values = {"name": name, "a": a, "b": b, "left": str(x.dtype), "right": str(y.dtype)}
        built = [pair.a.built.get(module_name(name)), pair.b.built.get(module_name(other or ""))]
        entries = entries_for_types(" ".join(one.code for one in built if one is not None))
        return [Note("types", values), *(Note("entry", {"entry": one}) for one in entries)]
    return []


def is_rounded_to_type(spot: TensorDistance, margin: float) -> bool:
    """Return whether the two arrays of a distance have two types and differ by no more than
    ``margin`` times the rounding of the lower one."""
    if (arrays := spot.arrays) is None or arrays[0].dtype == arrays[1].dtype:
        return False
    units = [LOW_PRECISION_UNITS.get(str(one.dtype), 0.0) for one in arrays]
    return spot.distance <= margin * max(units)
