"""The calls of one step again, from any of them on, without the ones before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from dualml.parity.causes.alteration import Alteration
from dualml.parity.models.operations import Tape
from dualml_torch.causes.altered import Altered, altered, everywhere, replaced
from dualml_torch.causes.layers import sized
from dualml_torch.causes.operands import name_in, operand, viewed
from dualml_torch.operations import ASSIGNS, tensors

Value = torch.Tensor


class Replay:
    """The calls of one step again, from any of them on.

    Attributes:
        values: name → tensor as it was when the call ended.
    """

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.values: dict[str, Value] = {}
        self.calls: list[tuple[Any, str, Any, Any]] = []

    def keep(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """A call, before it is made: inputs by name, what has no name as a copy."""

        def named(one: Any) -> Any:
            if not isinstance(one, Value):
                return one
            source = self.tape.source(one)
            if source == "?" or source not in self.values:
                if source == "?":
                    return one.detach().clone()
                self.values[source] = one.detach().clone()
            return Reference(source)

        self.calls.append((func, name, *tree_map(named, (tuple(args), dict(kwargs)))))

    def run(
        self, number: int, overlay: Mapping[str, Value], changes: Sequence[Alteration]
    ) -> list[Value]:
        """One call with some of its inputs replaced."""
        func, name, args, kwargs = self.calls[number]

        def known(key: str) -> Value:
            return overlay[key] if key in overlay else self.values[key]

        renamed = {str(c.old): c for c in changes if c.action == "rename"}

        def value(one: Any) -> Any:
            if not isinstance(one, Reference):
                return one
            change = renamed.get(one.name)
            return known(one.name) if change is None else viewed(change, known(name_in(change)))

        args, kwargs = tree_map(value, (args, kwargs))
        args = list(args)
        inplace = kwargs.get("inplace") or any(one is True for one in args)
        if name.endswith("_") or name == "batch_norm" or inplace:  # they write into their arguments
            args = [one.clone() if isinstance(one, Value) else one for one in args]
        result = None
        for change in changes:
            if change.action == "operand":
                other = viewed(change, known(operand(change, number)))
                args, kwargs = replaced(args, kwargs, int(change.argument), other)
            elif change.action == "everywhere":
                args, kwargs = everywhere(change, args, kwargs)
            elif change.action != "rename":
                result = altered(change, func, name, args, kwargs)
        if result is None:
            sized(name, args, kwargs)
            result = func(*args, **kwargs)
        return tensors(args[0] if name in ASSIGNS else result)


class Reference:
    """The name of a value in a call that is kept."""

    def __init__(self, name: str) -> None:
        self.name = name


class Recording(Altered):
    """A watch that keeps the calls for a `Replay`."""

    def __init__(
        self, tape: Tape, changes: Sequence[Alteration], parameters: Mapping[str, Value]
    ) -> None:
        super().__init__(tape, changes, parameters)
        self.replay = Replay(tape)

    def call(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        number = len(self.tape.calls)
        if name:
            del self.replay.calls[number:]  # a call without outputs has no number
            self.replay.keep(func, name, args, kwargs)
        result = super().call(func, name, args, kwargs)
        if name:
            for i, one in enumerate(tensors(args[0] if name in ASSIGNS else result)):
                self.replay.values[f"op:{number}" + (f"[{i}]" if i else "")] = one.detach().clone()
        return result
