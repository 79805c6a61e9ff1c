"""Collect the context of an operation: numbers, operands and shapes of both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dualml.parity.causes.mutation import MutationContext
from dualml.parity.causes.tables import OPERATOR_FUNCTIONS
from dualml.parity.models.operations import Operation, SourceLocation, call_number
from dualml.parity.models.trace import Trace
from dualml.parity.models.value_matching import TraceOperand

#: Largest number of calls between two consecutive recurrent states.
STATE = 3
#: Largest number of calls between two slices that belong together.
SLICES = 4


class ContextBuilder:
    """A builder of the contexts of operations of the first side.

    Args:
        a: the trace of the first side.
        names: the second side's parameters → the first side's, both with the prefix ``parameter:``.
        here, there: the operations of the first and of the second side.
    """

    def __init__(
        self, a: Trace, names: Mapping[str, str], here: TraceOperand, there: TraceOperand
    ) -> None:
        self.here = here
        #: The other side's names → this side's.
        self.shared = {v: k for k, v in here.shared.items()} | there.shared | dict(names)
        self.parameters = {f"parameter:{t.name}": t.shape for t in a.tensors}
        self.epsilons = epsilon_values(there.operations)
        self.buffers = frozenset(f"parameter:{t.name}" for t in a.tensors if not t.trained)
        self.made = {key: one for one in here.operations for key in one.output_names()}
        self.made_of = {
            key: tuple(n for n in one.inputs if n not in self.made or self.made[n].inputs)
            for key, one in self.made.items()
        }
        slices = [one for one in here.operations if is_slice(one)]
        #: Two consecutive slices, for example of outputs and targets.
        self.unsliced = {
            y.number: x.number
            for x, y in pairwise(slices)
            if y.number - x.number <= SLICES and x.inputs != y.inputs
        }

    def build_context(self, site: Operation, others: Sequence[Operation]) -> MutationContext:
        """Return the context of one operation.

        Args:
            others: operations of the other side near this place.
        """
        numbers = [
            n
            for one in others
            for n in (*numeric_constants(one.attributes), *constant_inputs(one.inputs))
        ]
        operands = [
            self.shared[name] for one in others for name in one.inputs if name in self.shared
        ]
        known = dict(self.parameters)
        known |= self.here.input_shapes()
        for one in self.here.operations[: site.number]:
            known |= dict(zip(one.output_names(), one.outputs, strict=True))
        sole = {}
        for one in self.here.operations[site.number :]:
            takers = {n for key in one.output_names() for n in self.here.consumers.get(key, ())}
            if len(takers) == 1:
                sole[one.number] = takers.pop()
        given = [known.get(name, ()) for name in site.inputs]
        near = sorted({n for shape in (*site.outputs, *given) for n in shape if n > 1})
        lengths = sorted({n for shape in [*site.outputs, *known.values()] for n in shape if n > 1})
        return MutationContext(
            numbers=tuple(dict.fromkeys(numbers)),
            operands=tuple(operands),
            shapes=known,
            only_consumer=sole,
            sizes=tuple(dict.fromkeys([*near, *lengths[:8]])),
            made_from=self.made_of,
            consumers={name: self.consumers_by_line(name) for name in site.inputs},
            buffers=self.buffers,
            unsliced=self.unsliced,
            carried_inputs=tuple(self.carried_inputs(site)),
            added=tuple(self.added_numbers(site)),
            epsilons=self.epsilons,
            rates=tuple(dict.fromkeys(rate for one in others for rate in dropout_rates(one))),
        )

    def carried_inputs(self, site: Operation) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield (input position, path) for inputs that two or three calls computed from a value of
        the same shape, as a recurrent state.

        The path lists the input positions of these calls, back to that value.
        """
        made = self.here.operations
        for i, name in enumerate(site.inputs):
            front: list[tuple[str, tuple[int, ...]]] = [(name, ())]
            for _ in range(STATE):
                front = [
                    (given, (*way, j))
                    for one, way in front
                    if (number := call_number(one)) is not None
                    for j, given in enumerate(made[number].inputs)
                ]
                for given, way in front:
                    x, y = self.here.arrays.get(given), self.here.arrays.get(name)
                    if len(way) > 1 and x is not None and y is not None and x.shape == y.shape:
                        yield i, way

    def consumers_by_line(self, name: str) -> list[list[int]]:
        """Return the numbers of the calls that take a value, in one list per source line."""
        lines: dict[SourceLocation | None, list[int]] = {}
        for number in dict.fromkeys(self.here.consumers.get(name, ())):
            lines.setdefault(self.here.operations[number].place, []).append(number)
        return list(lines.values())

    def added_numbers(self, site: Operation) -> Iterator[float]:
        """Yield the float constants that were added to inputs of this call, each by the call that
        computed the input; added tensors and whole numbers are left out."""
        for name in site.inputs:
            one = self.made.get(name)
            if one is not None and OPERATOR_FUNCTIONS.get(one.name, one.name) == "add":
                number = one.attributes.get("other")
                if isinstance(number, float):
                    yield number


def is_slice(one: Operation) -> bool:
    """Return whether a call is a ``__getitem__`` that takes a part of some axis by a slice, not
    only whole axes (``::``) or single indices."""
    index = one.attributes.get("argument 1") if one.name == "__getitem__" else None
    parts = index if isinstance(index, list) else [index]
    return any(isinstance(n, str) and n.count(":") == 2 and n != "::" for n in parts)


def epsilon_values(operations: Iterable[Operation]) -> tuple[float, ...]:
    """Return the distinct float settings of these calls whose name contains ``eps``."""
    values = (
        value
        for one in operations
        for name, value in one.attributes.items()
        if "eps" in name.lower() and isinstance(value, float)
    )
    return tuple(dict.fromkeys(values))


def dropout_rates(one: Operation) -> list[float]:
    """Return the drop probability of a Dropout call as a list; empty for other calls and for 0 or
    1.

    PyTorch records the probability to drop, MindSpore's operator the probability to keep.
    """
    if "dropout" not in one.name.lower():
        return []
    kept = one.attributes.get("keep_prob")
    rate = one.attributes.get("p") if kept is None else 1 - kept
    return [float(f"{rate:.6g}")] if isinstance(rate, float) and 0 < rate < 1 else []


def constant_inputs(inputs: Sequence[str]) -> list[float]:
    """Return the numbers among input names: ``constant:2.0``, a number passed as a tensor."""
    return [float(name.partition(":")[2]) for name in inputs if name.startswith("constant:")]


def numeric_constants(attributes: Mapping[str, Any]) -> list[float]:
    """Return all numbers among the values of settings as floats, also those inside lists; no
    booleans."""
    numbers = []
    for value in attributes.values():
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, int | float) and not isinstance(one, bool):
                numbers.append(float(one))
    return numbers
