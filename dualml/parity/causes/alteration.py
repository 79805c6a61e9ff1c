"""One change of what a model does, and what is known around the place where it is tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Shape = tuple[int, ...]
#: (name, numbers): a function of one tensor that a backend knows.
Transform = tuple[Any, ...]


@dataclass(frozen=True)
class Alteration:
    """One change of what a model does.

    Attributes:
        kind: ``attribute``, ``function``, ``missing``, ``extra``, ``order``, ``layout``,
            ``operand``, ``constant``, ``mask``, ``dtype``, ``gradient``, ``parameters``,
            ``optimizer``.
        action: what is done: ``set``, ``settings``, ``function``, ``input``, ``inputs``,
            ``output``, ``drop``, ``dropout``, ``operand``, ``exchange``, ``rename``, ``lower``,
            ``swap``, ``parameters``, ``optimizer``.
        sites: numbers of the calls that are altered.
        operation: their function.
        argument: the setting; for ``input``, ``drop`` and ``operand`` the position of the tensor.
        value: the new value, a transform, a function, a name.
        old: the setting's value on the side that is altered.
        line: of an optimizer's own line, ``97:v.sqrt()``.
    """

    kind: str
    action: str
    sites: tuple[int, ...]
    operation: str = ""
    argument: str | float = ""
    value: Any = None
    old: Any = None
    line: str = ""

    def at(self, sites: Iterable[int]) -> Alteration:
        return Alteration(
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
class Around:
    """What is known beside the operation.

    Attributes:
        numbers: constants that the other side used near this place.
        operands: names of values that the other side used there, under this side's names.
        shapes: name of every value that exists before → its shape.
        sole: number of a call → the only call that takes its value.
        sizes: lengths of axes of the model, for factors such as 1 / √d.
        made_of: name of a value → the inputs of the call that made it, but for constants.
        takers: name of a value → the calls that take it, those of one line together.
        buffers: names of parameters that no optimizer changes.
        earlier: an input that a loop carries on, and the way back to what it was made of.
        added: numbers that were added to the inputs before.
        rates: of the other side's Dropouts near this place.
        epsilons: of all calls of the other side.
        unsliced: number of a slice → the slice before it, of another tensor.
    """

    numbers: tuple[float, ...]
    operands: tuple[str, ...]
    shapes: Mapping[str, Shape]
    sole: Mapping[int, int]
    sizes: tuple[int, ...]
    made_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    takers: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    buffers: frozenset[str] = frozenset()
    unsliced: Mapping[int, int] = field(default_factory=dict)
    earlier: tuple[tuple[int, tuple[int, ...]], ...] = ()
    added: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    epsilons: tuple[float, ...] = ()
