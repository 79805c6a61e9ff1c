"""A tracer under which calls of a whole run are mutated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.spans import plan_source, replayed_calls, run_plan
from dualml.parity.causes.swaps import swapped_values
from dualml.parity.models.operations import Tape
from dualml.parity.models.rng import SharedRng
from dualml_torch.algorithms.parts import FUSED
from dualml_torch.parity.causes.call_mutations import (
    Draw,
    MutatedFunction,
    replace_constant,
)
from dualml_torch.parity.causes.calls import ReplayableCall, replace_tensor
from dualml_torch.parity.causes.functions import transform
from dualml_torch.parity.causes.layers import check_recurrent_sizes
from dualml_torch.parity.causes.operands import (
    earlier_operand,
    operand_name,
    other_operand,
    put_value,
    select_part,
    select_rows,
)
from dualml_torch.parity.causes.size_checks import with_size_checks
from dualml_torch.parity.operations import ASSIGNS, OperationTracer, find_tensors

Value = torch.Tensor
#: Mutations that do not concern the function of a single call.
WIDE = ("everywhere", "borrow", "rename", "trade", "cut", "parameters", "optimizer")
#: Mutations that need values of the step other than the call's own arguments.
CONTEXT_ACTIONS = ("spans", "swap", "earlier", "operand", "by_value", "reroute", "addend")


class MutatingTracer(OperationTracer):
    """A tracer that mutates some of the calls it sees and records them, mutated, in ``tape``.

    Args:
        changes: the mutations; those of single calls name these by their numbers in the tape
            (``sites``).
        parameters: name → parameter or buffer of the model.
        fused: whether functions that dualml can also compute by several calls are called as a
            whole.
        chance: source of random numbers.
        keeps_attention: whether fused attention is one call, unless ``fused`` is False.
    """

    def __init__(
        self,
        tape: Tape,
        changes: Sequence[Mutation],
        parameters: Mapping[str, Value],
        fused: bool = True,
        chance: SharedRng | None = None,
        keeps_attention: bool = False,
    ) -> None:
        super().__init__(tape, None if fused else FUSED, keeps_attention and fused)
        self.changes, self.parameters, self.chance = changes, parameters, chance or SharedRng(0)
        self.live_values: dict[str, Any] = {}
        #: Deferred calls: number of the call that triggers one → the call and its mutated input.
        self.deferred_calls: dict[int, tuple[Any, Sequence[Any], Mapping[str, Any], int]] = {}
        self.replayed_numbers, self.kept_calls = (
            replayed_calls(changes),
            dict[int, ReplayableCall](),
        )

    def call(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a call under all mutations that apply to it, store its outputs in `live_values` by
        name and return its result."""
        number = len(self.tape.calls)
        func = self.mutate_function(number, with_size_checks(func, name), name)
        chosen = [
            c
            for c in self.changes
            if number in c.sites
            and c.action not in WIDE
            and (c.operation in (name, "") or c.action == "spans")
        ]
        args, kwargs = self.swap_parameters(args, kwargs)
        for change in self.changes:
            if change.action == "everywhere" and name:
                args, kwargs = replace_constant(change, args, kwargs)
            elif change.action == "borrow" and number in change.sites:
                args, kwargs = self.borrow_parameters(change, args, kwargs)
            elif change.action == "trade" and (pair := swapped_values(change, number)) is not None:
                x, y = map(self.value_of, pair)
                args, kwargs = tree_map(
                    lambda one, x=x, y=y: y if one is x else x if one is y else one,
                    (args, dict(kwargs)),
                )
            elif change.action in ("rename", "cut") and number in change.sites:
                if change.action == "cut":
                    old = self.value_of(str(change.argument))
                    new = old.detach()
                else:
                    old = self.value_of(str(change.old))
                    new = select_part(change, self.value_of(operand_name(change)))
                args, kwargs = tree_map(
                    lambda one, old=old, new=new: new if one is old else one, (args, dict(kwargs))
                )
        if name and number in self.replayed_numbers:
            self.kept_calls[number] = ReplayableCall.from_arguments(
                func, name, args, kwargs, self.tape.find_source
            )
        held = self.deferred_calls.pop(number, None)
        result = None
        for change in chosen:
            if change.action == "spans" and change.argument != "":
                value = self.value_of(plan_source(change, number))
                value = run_plan(change, number, value, self.replay_call, transform)
                args, kwargs = replace_tensor(args, kwargs, int(change.argument), value)
            elif change.action == "spans":
                begin = plan_source(change, number)
                value = self.value_of(begin) if begin else find_tensors(func(*args, **kwargs))[0]
                result = run_plan(change, number, value, self.replay_call, transform)
            elif change.action == "swap":
                at = int(change.argument)
                self.deferred_calls[number + int(change.value)] = (func, args, kwargs, at)
                result = find_tensors((args, kwargs))[at]
            elif change.action == "earlier":
                at = int(change.argument)
                name_now = self.tape.find_source(find_tensors((args, kwargs))[at])
                other = self.value_of(earlier_operand(change, name_now, self.tape.calls))
                args, kwargs = replace_tensor(args, kwargs, at, other)
            elif change.action == "operand":
                other = select_part(change, self.value_of(other_operand(change, number)))
                args, kwargs = replace_tensor(args, kwargs, int(change.argument), other)
            elif change.action == "by_value":
                other = self.value_of(other_operand(change, number))
                args, kwargs = put_value(change, func, name, args, kwargs, other)
            elif change.action == "addend":
                at, other = int(change.argument), self.value_of(str(change.value))
                given = find_tensors((args, kwargs))[at]
                args, kwargs = replace_tensor(args, kwargs, at, given + select_rows(change, other))
            elif change.action == "reroute":
                at, other = int(change.argument), self.value_of(str(change.value))
                straight = other + (find_tensors((args, kwargs))[at] - other).detach()
                args, kwargs = replace_tensor(args, kwargs, at, straight)
        if result is None:
            check_recurrent_sizes(name, args, kwargs)
            result = func(*args, **kwargs)
        if held is not None:
            before, first, named, at = held
            # A copy: an in-place call would spoil the gradient of the previous one.
            first, named = replace_tensor(first, named, at, find_tensors(result)[0].clone())
            result = before(*first, **named)
        outputs = find_tensors(args[0] if name in ASSIGNS else result)
        for i, one in enumerate(outputs):
            self.live_values[f"op:{number}" + (f"[{i}]" if i else "")] = one
        return result

    def mutate_function(self, number: int, func: Any, name: str, draw: Draw | None = None) -> Any:
        """Return the function of call ``number`` under all mutations of this call alone; as it is
        if there are none. Those that need other values of the step (`CONTEXT_ACTIONS`) are left
        out.

        Args:
            draw: source of uniform numbers, in place of the step's own.
        """
        for change in self.changes:
            own = number in change.sites and change.operation in (name, "")
            if own and change.action not in (*WIDE, *CONTEXT_ACTIONS):
                func = MutatedFunction(change, func, name, draw or self.chance.uniform)
        return func

    def replay_call(self, number: int, overlay: Mapping[str, Value]) -> Sequence[Value]:
        """Run a recorded call of this step again, with the inputs in ``overlay`` (name → tensor)
        replaced; return its output tensors. A batch norm's running statistics are set back to those
        at the step's beginning and updated again."""
        call = self.kept_calls[number]
        for name, one in call.buffers.items():  # the state before the original call
            one.copy_(self.value_of(name))
        leaves = call.leaves.copy()
        for i, name in call.names:
            leaves[i] = overlay[name] if name in overlay else self.value_of(name)
        args, kwargs = call.fill_arguments(leaves)
        return find_tensors(call.func(*args, **kwargs))

    def borrow_parameters(
        self, change: Mutation, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, Any]:
        """Return the arguments with the parameters of the module ``change.value`` in place of those
        of the module ``change.argument``, where it has one of the same name."""
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

    def value_of(self, name: str) -> Value:
        """Return the tensor of a name (``op:3``, ``parameter:w``, ``input:0``) in the current step;
        StopIteration or KeyError if there is none."""
        if name.startswith("parameter:"):
            return self.parameters[name.removeprefix("parameter:")]
        if name in self.live_values:
            return self.live_values[name]
        return next(t for _, (n, t) in self.tape.sources.items() if n == name)

    def swap_parameters(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments with pairs of parameters swapped where mutations with the action
        ``parameters`` say so; unchanged without one."""
        pairs = [c for c in self.changes if c.action == "parameters"]
        if not pairs:
            return args, kwargs
        other: dict[int, Value] = {}
        for change in pairs:
            x, y = self.value_of(str(change.old)), self.value_of(str(change.value))
            other |= {id(x): y, id(y): x}
        changed: Any = tree_map(lambda one: other.get(id(one), one), (tuple(args), dict(kwargs)))
        return changed
