"""A mutation of a model, and the context of the operation where it is tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]
#: (name, numbers): a function of one tensor that a backend knows.
Transform = tuple[Any, ...]


@dataclass(frozen=True)
class Mutation:
    """One change to what a model computes.

    Attributes:
        kind: ``attribute``, ``function``, ``missing``, ``extra``, ``order``, ``layout``,
            ``operand``, ``constant``, ``mask``, ``dtype``, ``gradient``, ``parameters``,
            ``optimizer``.
        action: what is done, such as ``set``, ``settings``, ``function``, ``input``, ``inputs``,
            ``output``, ``drop``, ``dropout``, ``operand``, ``exchange``, ``rename``, ``lower``,
            ``swap``, ``parameters``, ``optimizer``.
        sites: numbers of the calls that are changed.
        operation: the function of these calls.
        argument: the setting; for ``input``, ``drop`` and ``operand`` the position of the tensor.
        value: the new value, a transform, a function or a name.
        old: the setting's value before the change.
        line: source line of an optimizer that is changed, such as ``97:v.sqrt()``.
    """

    kind: str
    action: str
    sites: tuple[int, ...]
    operation: str = ""
    argument: str | float = ""
    value: Any = None
    old: Any = None
    line: str = ""

    def with_sites(self, sites: Iterable[int]) -> Mutation:
        """Return a copy of the mutation at these calls instead of its own."""
        return Mutation(
            self.kind,
            self.action,
            tuple(sites),
            self.operation,
            self.argument,
            self.value,
            self.old,
            self.line,
        )


@dataclass(frozen=True)
class MutationContext:
    """Facts about both models near an operation, from which mutations are built.

    Attributes:
        numbers: constants that the other side used near this place.
        operands: values that the other side used there, under this side's names.
        shapes: name of every earlier value → its shape.
        only_consumer: number of a call → the only call that takes its value.
        sizes: axis lengths of the model, for factors such as 1 / √d.
        made_from: name of a value → the inputs of the call that computed it, without constants.
        consumers: name of a value → the calls that take it, grouped by source line.
        buffers: names of parameters that no optimizer changes.
        unsliced: number of a slice → the preceding slice, of another tensor.
        carried_inputs: inputs that a loop carries on, each with the path of input positions back to
            the value it was computed from.
        added: numbers that were added to the inputs before.
        rates: rates of the other side's Dropouts near this place.
        epsilons: epsilons of all calls of the other side.
    """

    numbers: tuple[float, ...]
    operands: tuple[str, ...]
    shapes: Mapping[str, Shape]
    only_consumer: Mapping[int, int]
    sizes: tuple[int, ...]
    made_from: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    consumers: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    buffers: frozenset[str] = frozenset()
    unsliced: Mapping[int, int] = field(default_factory=dict)
    carried_inputs: tuple[tuple[int, tuple[int, ...]], ...] = ()
    added: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    epsilons: tuple[float, ...] = ()
