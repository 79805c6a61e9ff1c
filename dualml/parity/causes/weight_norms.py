"""Enumerate mutations of a weight norm along another axis, whose length has another shape."""

from __future__ import annotations

from collections.abc import Iterator

from dualml.common.tensor_files import array_shape
from dualml.parity.causes.graph_state import Sides
from dualml.parity.causes.mutation import Mutation
from dualml.parity.models.operations import Operation

#: PyTorch's functions of a direction v, a length g and an axis.
WEIGHT_NORMS = ("_weight_norm", "_weight_norm_interface")


def norm_axis_mutations(sides: Sides) -> Iterator[Mutation]:
    """Yield mutations under which a weight norm has another axis, with a length of the other side
    that has no partner because of its shape.

    The direction is v, and the length g has the shape of v with 1 in place of all sizes but that of
    the axis. The other side's lengths are registered as constants.
    """
    names, start = sides.pairing.unpaired_parameters[1], sides.b.initial_parameters()
    shapes = {name: array_shape(start, name) for name in names if name in start}
    for one in sides.a.operations:
        if one.name not in WEIGHT_NORMS or len(one.inputs) < 2:
            continue
        v, own = direction_shape(sides, one), find_axis(one)
        for name, shape in shapes.items():
            for axis in range(len(v)):
                if axis != own and shape == length_shape(v, axis):
                    sides.explorer.set_constants({name: start[name]})
                    value = (axis, name)
                    yield Mutation(
                        "attribute", "norm_axis", (one.number,), one.name, "dim", value, own
                    )


def direction_shape(sides: Sides, one: Operation) -> tuple[int, ...]:
    """Return the shape of the direction that a weight norm takes; empty if it is no parameter."""
    name = one.inputs[0].removeprefix("parameter:")
    return next((tensor.shape for tensor in sides.a.tensors if tensor.name == name), ())


def find_axis(one: Operation) -> int:
    """Return the axis of a call of a weight norm: its first integer setting, 0 without one."""
    values = [value for value in one.attributes.values() if type(value) is int]
    return values[0] if values else 0


def length_shape(v: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """Return the shape of the length of a direction along one axis.

    Example:
        >>> length_shape((24, 6, 8), 0)
        (24, 1, 1)
    """
    return tuple(size if i == axis else 1 for i, size in enumerate(v))
