"""Replays of single calls of one step, without the calls before them.

A search replays some hundred thousand calls, most of them on small tensors: everything that a call
needs apart from its kernel is determined once, when it is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_flatten

from dualml.parity.causes.mutation import Mutation
from dualml.parity.causes.spans import plan_source, run_plan
from dualml.parity.causes.swaps import swapped_values
from dualml.parity.models.operations import Tape, is_unknown, value_name
from dualml.parity.models.rng import SharedRng
from dualml_torch.parity.causes.call_mutations import (
    MutatedFunction,
    call_mutated,
    replace_constant,
)
from dualml_torch.parity.causes.calls import ReplayableCall, replace_tensor
from dualml_torch.parity.causes.functions import transform
from dualml_torch.parity.causes.layers import check_recurrent_sizes
from dualml_torch.parity.causes.mutating_tracer import MutatingTracer
from dualml_torch.parity.causes.operands import (
    earlier_operand,
    operand_name,
    other_operand,
    put_value,
    select_part,
)
from dualml_torch.parity.causes.size_checks import with_size_checks
from dualml_torch.parity.operations import ASSIGNS, find_tensors
from dualml_torch.parity.rng import DROPOUTS

Value = torch.Tensor


class Replay:
    """The recorded calls of one step, each of which can be run again.

    Args:
        tape: record of the step's operations, which numbers the calls and names the values:
            ``op:3``, ``parameter:w``, ``input:0``.
        seed: seed of the random numbers.
        changes: mutations under which the step was made.
        weights: name → value of parameters at the beginning of the step, which nothing changes:
            they are used in place of copies.

    Attributes:
        values: name → tensor as it was when the call ended.
        gradients: name → gradient of a call's output, where the step made a backward pass.
        differentiable: names of the calls' outputs through which gradients flow.
    """

    def __init__(
        self,
        tape: Tape,
        seed: int = 0,
        changes: Sequence[Mutation] = (),
        weights: Mapping[str, Value] | None = None,
    ) -> None:
        self.tape, self.seed, self.changes = tape, seed, changes
        self.weights = weights or {}
        self.values: dict[str, Value] = {}
        self.gradients: dict[str, Value] = {}
        self.differentiable: set[str] = set()
        self.calls: list[ReplayableCall] = []

    def keep_value(self, name: str, tensor: Value) -> None:
        """Store the value of a tensor in `values`: a copy, or for a parameter whose initial value
        is in ``weights`` that one."""
        own = self.weights.get(name.removeprefix("parameter:"))
        whole = isinstance(tensor, torch.nn.Parameter) and own is not None
        if whole and own is not None and own.shape == tensor.shape:
            self.values[name] = own
        else:
            self.values[name] = tensor.detach().clone()

    def watch_gradient(self, name: str, tensor: Value) -> None:
        """Register a hook that stores the gradient of a call's output in `gradients` once the
        backward pass has computed it."""
        if tensor.requires_grad:
            self.differentiable.add(name)
            tensor.register_hook(partial(self.gradients.__setitem__, name))

    def record_call(
        self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Record a call before it runs: tensors whose name the tape knows by name, all others as
        copies."""
        leaves, spec = tree_flatten((tuple(args), dict(kwargs)))
        names: dict[int, str] = {}
        for i, one in enumerate(leaves):
            if not isinstance(one, Value):
                continue
            source = self.tape.find_source(one)
            if is_unknown(source):
                leaves[i] = one.detach().clone()
                continue
            if source not in self.values:
                self.keep_value(source, one)
            names[i], leaves[i] = source, None
        self.calls.append(ReplayableCall(func, name, leaves, spec, names))

    def run(
        self, number: int, overlay: Mapping[str, Value], changes: Sequence[Mutation]
    ) -> list[Value]:
        """Run call ``number`` under mutations, with the inputs in ``overlay`` (name → tensor)
        replaced, and return its output tensors; a call that writes into its arguments gets
        copies."""
        call, values = self.calls[number], self.values

        def input_value(name: str) -> Value:
            value = overlay[name] if name in overlay else values[name]
            return value.clone() if call.writes_arguments else value

        leaves = call.leaves.copy()
        if call.writes_arguments:
            leaves = [one.clone() if isinstance(one, Value) else one for one in leaves]
        for i, name in call.names:
            leaves[i] = input_value(name)
        for change in changes:
            if change.action == "rename":
                other = select_part(change, input_value(operand_name(change)))
                for i, name in call.names:
                    if name == change.old:
                        leaves[i] = other
            elif change.action == "trade" and (pair := swapped_values(change, number)) is not None:
                for i, name in call.names:
                    if name in pair:
                        leaves[i] = input_value(pair[name == pair[0]])
        args, kwargs = call.fill_arguments(leaves)
        result = None
        for change in changes:
            if change.action == "spans":
                value = self.replay_span(change, number, overlay, (call.func, args, kwargs))
                if change.argument == "":
                    result = value
                else:
                    args, kwargs = replace_tensor(args, kwargs, int(change.argument), value)
            elif change.action == "earlier":
                at = int(change.argument)
                before = earlier_operand(
                    change, self.tape.calls[number].inputs[at], self.tape.calls
                )
                args, kwargs = replace_tensor(args, kwargs, at, input_value(before))
            elif change.action == "operand":
                other = select_part(change, input_value(other_operand(change, number)))
                args, kwargs = replace_tensor(args, kwargs, int(change.argument), other)
            elif change.action == "by_value":
                other = input_value(other_operand(change, number))
                args, kwargs = put_value(change, call.func, call.name, args, kwargs, other)
            elif change.action == "everywhere":
                args, kwargs = replace_constant(change, args, kwargs)
            elif change.action == "dropout":
                func = MutatedFunction(
                    change, call.func, call.name, partial(self.draw_numbers, number)
                )
                result = func(*args, **kwargs)
            elif change.action not in ("rename", "trade"):
                result = call_mutated(change, call.func, call.name, args, kwargs)
        if result is None:
            check_recurrent_sizes(call.name, args, kwargs)
            result = call.func(*args, **kwargs)
        if type(result) is Value:
            return [args[0]] if call.name in ASSIGNS else [result]
        return find_tensors(args[0] if call.name in ASSIGNS else result)

    def draw_numbers(self, number: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the uniform numbers of this shape that call ``number`` draws in a Dropout, after
        those that earlier calls of the step have drawn; equal in every replay."""
        chance, size = SharedRng(self.seed), prod(shape)
        for one in self.tape.calls[:number]:
            if one.name in DROPOUTS and one.attributes.get("p") != 0:
                chance.draw_counts[size] += prod(one.outputs[0]) == size
        chance.draw_counts[size] += sum(
            site < number and prod(self.tape.calls[site].outputs[0]) == size
            for change in self.changes
            if change.action == "dropout"
            for site in change.sites
        )
        return chance.uniform(shape)

    def replay_span(
        self, change: Mutation, number: int, overlay: Mapping[str, Value], call: tuple[Any, ...]
    ) -> Value:
        """Return the value of a span (consecutive calls) that the mutation replays at call
        ``number``, on another input: the value that the mutation names, or the result of ``call``
        (function, arguments, keywords)."""
        if begin := plan_source(change, number):
            value = overlay[begin] if begin in overlay else self.values[begin]
        else:
            value = find_tensors(call[0](*call[1], **call[2]))[0]

        def run(number: int, own: Mapping[str, Value]) -> list[Value]:
            return self.run(number, {**overlay, **own}, [])

        result: Value = run_plan(change, number, value, run, transform)
        return result


class ReplayTracer(MutatingTracer):
    """A mutating tracer that also records the calls in its `Replay`, the attribute ``replay``."""

    def __init__(
        self,
        tape: Tape,
        changes: Sequence[Mutation],
        parameters: Mapping[str, Value],
        fused: bool = True,
        chance: SharedRng | None = None,
        keeps_attention: bool = False,
        weights: Mapping[str, Value] | None = None,
    ) -> None:
        super().__init__(tape, changes, parameters, fused, chance, keeps_attention)
        self.replay = Replay(tape, self.chance.seed, changes, weights)

    def call(self, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run a call under its mutations and return its result; record it in `replay`, with copies
        of its outputs. Calls without a ``name``, which the tape does not record, are only run."""
        number, func = len(self.tape.calls), with_size_checks(func, name)
        if name:
            del self.replay.calls[number:]  # a call without outputs has no number
            draw = partial(self.replay.draw_numbers, number)
            self.replay.record_call(
                self.mutate_function(number, func, name, draw), name, args, kwargs
            )
        result = super().call(func, name, args, kwargs)
        if name:
            for i, one in enumerate(find_tensors(args[0] if name in ASSIGNS else result)):
                output = value_name(number, i)
                self.replay.values[output] = one.detach().clone()
                self.replay.watch_gradient(output, one)
        return result
