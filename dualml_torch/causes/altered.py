"""A tracer under which calls of a whole run are mutated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from dualml.parity.causes.alteration import Alteration
from dualml.parity.causes.spans import calls_of, source, through
from dualml.parity.causes.trades import traded
from dualml.parity.models.chance import Chance
from dualml.parity.models.operations import Tape
from dualml_torch.causes.altering import Changed, Draw, everywhere, replaced
from dualml_torch.causes.calls import Call
from dualml_torch.causes.functions import transform
from dualml_torch.causes.layers import sized
from dualml_torch.causes.operands import earlier, name_in, operand, viewed
from dualml_torch.causes.packed import checked
from dualml_torch.operations import ASSIGNS, Watch, tensors
from dualml_torch.parts import FUSED

Value = torch.Tensor
#: Mutations that do not concern the function of a single call.
WIDE = ("everywhere", "borrow", "rename", "trade", "cut", "parameters", "optimizer")
#: Mutations that need values of the step other than the call's own arguments.
PLACED = ("spans", "swap", "earlier", "operand")


class Altered(Watch):
    """A tracer that mutates some of the calls it sees.

    Args:
        fused: whether functions with a decomposition are called as a whole.
        chance: source of random numbers.
    """

    def __init__(
        self,
        tape: Tape,
        changes: Sequence[Alteration],
        parameters: Mapping[str, Value],
        fused: bool = True,
        chance: Chance | None = None,
    ) -> None:
        super().__init__(tape, None if fused else FUSED)
        self.changes, self.parameters, self.chance = changes, parameters, chance or Chance(0)
        self.live: dict[str, Any] = {}
        #: Deferred calls: number of the call that triggers one → the call and its mutated input.
        self.held: dict[int, tuple[Any, Sequence[Any], Mapping[str, Any], int]] = {}
        self.again, self.kept = calls_of(changes), dict[int, Call]()

    def call(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a call under all mutations that apply to it and record its outputs."""
        number = len(self.tape.calls)
        func = self.changed(number, checked(func, name), name)
        chosen = [
            c
            for c in self.changes
            if number in c.sites
            and c.action not in WIDE
            and (c.operation == name or c.action == "spans")
        ]
        args, kwargs = self.swapped(args, kwargs)
        for change in self.changes:
            if change.action == "everywhere" and name:
                args, kwargs = everywhere(change, args, kwargs)
            elif change.action == "borrow" and number in change.sites:
                args, kwargs = self.borrowed(change, args, kwargs)
            elif change.action == "trade" and (pair := traded(change, number)) is not None:
                x, y = map(self.value, pair)
                args, kwargs = tree_map(
                    lambda one, x=x, y=y: y if one is x else x if one is y else one,
                    (args, dict(kwargs)),
                )
            elif change.action in ("rename", "cut") and number in change.sites:
                if change.action == "cut":
                    old = self.value(str(change.argument))
                    new = old.detach()
                else:
                    old = self.value(str(change.old))
                    new = viewed(change, self.value(name_in(change)))
                args, kwargs = tree_map(
                    lambda one, old=old, new=new: new if one is old else one, (args, dict(kwargs))
                )
        if name and number in self.again:
            self.kept[number] = Call.made(func, name, args, kwargs, self.tape.source)
        held = self.held.pop(number, None)
        result = None
        for change in chosen:
            if change.action == "spans" and change.argument != "":
                value = self.value(source(change, number))
                value = through(change, number, value, self.made_again, transform)
                args, kwargs = replaced(args, kwargs, int(change.argument), value)
            elif change.action == "spans":
                begin = source(change, number)
                value = self.value(begin) if begin else tensors(func(*args, **kwargs))[0]
                result = through(change, number, value, self.made_again, transform)
            elif change.action == "swap":
                at = int(change.argument)
                self.held[number + int(change.value)] = (func, args, kwargs, at)
                result = tensors((args, kwargs))[at]
            elif change.action == "earlier":
                at = int(change.argument)
                name_now = self.tape.source(tensors((args, kwargs))[at])
                other = self.value(earlier(change, name_now, self.tape.calls))
                args, kwargs = replaced(args, kwargs, at, other)
            elif change.action == "operand":
                other = viewed(change, self.value(operand(change, number)))
                args, kwargs = replaced(args, kwargs, int(change.argument), other)
        if result is None:
            sized(name, args, kwargs)
            result = func(*args, **kwargs)
        if held is not None:
            before, first, named, at = held
            # A copy: an in-place call would spoil the gradient of the previous one.
            first, named = replaced(first, named, at, tensors(result)[0].clone())
            result = before(*first, **named)
        outputs = tensors(args[0] if name in ASSIGNS else result)
        for i, one in enumerate(outputs):
            self.live[f"op:{number}" + (f"[{i}]" if i else "")] = one
        return result

    def changed(self, number: int, func: Any, name: str, draw: Draw | None = None) -> Any:
        """Return the function of a call under all mutations of this call alone.

        Args:
            draw: source of uniform numbers, in place of the step's own.
        """
        for change in self.changes:
            own = number in change.sites and change.operation == name
            if own and change.action not in (*WIDE, *PLACED):
                func = Changed(change, func, name, draw or self.chance.uniform)
        return func

    def made_again(self, number: int, overlay: Mapping[str, Value]) -> Sequence[Value]:
        """Run a recorded call of this step again with other inputs; return its outputs."""
        call = self.kept[number]
        for name, one in call.buffers.items():  # the state before the original call
            one.copy_(self.value(name))
        leaves = call.leaves.copy()
        for i, name in call.names:
            leaves[i] = overlay[name] if name in overlay else self.value(name)
        args, kwargs = call.arguments(leaves)
        return tensors(call.func(*args, **kwargs))

    def borrowed(
        self, change: Alteration, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        """Return the arguments with another module's parameters in place of this module's."""
        own, other = str(change.argument), str(change.value)
        places = {
            id(p): self.parameters.get(other + name.removeprefix(own))
            for name, p in self.parameters.items()
            if name.startswith(f"{own}.")
        }
        changed: Any = tree_map(
            lambda one: one if places.get(id(one)) is None else places[id(one)],
            (tuple(args), dict(kwargs)),
        )
        return changed

    def value(self, name: str) -> Value:
        """Return the tensor of a name (``op:3``, ``parameter:w``) in the current step."""
        if name.startswith("parameter:"):
            return self.parameters[name.removeprefix("parameter:")]
        if name in self.live:
            return self.live[name]
        return next(t for _, (n, t) in self.tape.sources.items() if n == name)

    def swapped(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments with pairs of parameters swapped."""
        pairs = [c for c in self.changes if c.action == "parameters"]
        if not pairs:
            return args, kwargs
        other: dict[int, Value] = {}
        for change in pairs:
            x, y = self.value(str(change.old)), self.value(str(change.value))
            other |= {id(x): y, id(y): x}
        changed: Any = tree_map(lambda one: other.get(id(one), one), (tuple(args), dict(kwargs)))
        return changed
