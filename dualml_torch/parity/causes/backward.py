"""Replays of the backward pass of single calls, from the gradients of a recorded step.

The backward pass is linear in the gradients that enter it. A mutation that leaves all values as
they are therefore changes the gradients of its own calls' inputs, and only this change needs to be
passed on to the calls before them, up to the parameters. No other call is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from dualml.parity.causes.mutation import Mutation
from dualml_torch.parity.causes.replay import Replay, Value

#: Actions whose effect on gradients is that of their own calls alone.
LOCAL_ACTIONS = frozenset(
    (
        *("set", "drop", "settings", "function", "input", "output", "operand", "exchange"),
        *("rename", "earlier", "form", "detach", "attach", "cut", "twice", "instead", "whole"),
    )
)
#: Relative distance up to which a gradient counts as reproduced by the replay, and up to which a
#: mutated call's values count as unchanged.
REPLAYED_RTOL, UNCHANGED_RTOL = 1e-3, 1e-6


class LeafValues(dict[str, Value]):
    """The values of a replay as a dict, whose entries are made when they are read; those that
    depend on a trained parameter are leaves of a new graph, and only they are stored.

    Args:
        values: name → recorded tensor.
        moving: names of the values that depend on a trained parameter.
    """

    def __init__(self, values: Mapping[str, Value], moving: frozenset[str]) -> None:
        super().__init__()
        self.values_by_name, self.moving = values, moving

    def __contains__(self, name: object) -> bool:
        return name in self.values_by_name

    def __missing__(self, name: str) -> Value:
        value = self.values_by_name[name].detach()
        if name in self.moving:
            value = self[name] = value.requires_grad_()
        return value


class BackwardReplay:
    """The backward pass of a recorded step, call by call.

    Args:
        replay: the recorded calls, with the gradients of their outputs.
        gradients: parameter → gradient of the step; the parameters are those that are trained.
    """

    def __init__(self, replay: Replay, gradients: Mapping[str, Value]) -> None:
        self.replay = replay
        self.calls = replay.tape.calls
        self.gradients = dict(replay.gradients)
        self.parameters = {f"parameter:{name}": one for name, one in gradients.items()}
        #: Name of a value → the first call that takes it.
        self.first_consumer: dict[str, int] = {}
        moving = set(self.parameters)
        for call in self.calls:
            for name in call.inputs:
                self.first_consumer.setdefault(name, call.number)
            if not moving.isdisjoint(call.inputs):
                moving |= {
                    name
                    for name in call.output_names()
                    if name in replay.values and replay.values[name].is_floating_point()
                }
        self.moving = frozenset(moving)
        #: Values whose gradient the replay does not reproduce: a call before or behind them has
        #: effects that are not recorded.
        self.unreliable = frozenset(self.find_unreliable())

    def input_gradients(
        self, number: int, entering: Sequence[Value | None], changes: Sequence[Mutation] = ()
    ) -> dict[str, Value]:
        """Return the gradients of the inputs of one call, by name, from those of its outputs.

        Args:
            entering: gradient of each output, None for zero.
            changes: mutations of the call; where it is cut off from a value, that has no gradient.
        """
        leaves = LeafValues(self.replay.values, self.moving)
        cut = [change for change in changes if change.action == "cut"]
        others = [change for change in changes if change.action != "cut"]
        with torch.enable_grad():
            outputs = self.replay.run(number, leaves, others)
            pairs = [
                (one, gradient)
                for one, gradient in zip(outputs, entering, strict=False)
                if gradient is not None and one.requires_grad
            ]
            if not pairs or not leaves:
                return {}
            found = torch.autograd.grad(
                [one for one, _ in pairs],
                list(leaves.values()),
                [gradient for _, gradient in pairs],
                allow_unused=True,
            )
        left_out = {str(change.argument) for change in cut}
        return {
            name: one
            for name, one in zip(leaves, found, strict=True)
            if one is not None and name not in left_out
        }

    def find_unreliable(self) -> Iterator[str]:
        """Yield the names of the values whose recorded gradient is not the sum of what the replayed
        calls pass on, and of the inputs of calls that cannot be repeated alone."""
        sums: dict[str, Value] = {}
        for call in reversed(self.calls):
            names = call.output_names()
            for name in names:
                yield from self.check_gradient(name, sums.pop(name, None))
            entering = [self.gradients.get(name) for name in names]
            if all(one is None for one in entering):
                continue
            try:
                passed = self.input_gradients(call.number, entering)
            except Exception:  # a call that cannot be repeated alone
                yield from call.inputs
                continue
            for name, one in passed.items():
                sums[name] = sums[name] + one if name in sums else one
            for name in list(passed):
                if name in self.parameters and self.first_consumer.get(name) == call.number:
                    yield from self.check_gradient(name, sums.pop(name))

    def check_gradient(self, name: str, replayed: Value | None) -> Iterator[str]:
        """Yield the name of a value if its replayed gradient is not the recorded one.

        Values through which no gradient flows, as behind a detach, get the replayed one: a mutation
        may undo the detach.
        """
        if name not in self.parameters and name not in self.replay.differentiable:
            if replayed is not None:
                self.gradients[name] = replayed
            return
        known = self.parameters.get(name, self.gradients.get(name))
        if known is None and replayed is None:
            return
        if known is None or replayed is None:
            other = replayed if known is None else known
            if other is not None and bool(other.any()):
                yield name
        elif known.shape != replayed.shape or distance(known, replayed) > REPLAYED_RTOL:
            yield name

    def leaves_values(self, change: Mutation) -> bool:
        """Return whether a mutation leaves the outputs of its calls as they were, up to
        UNCHANGED_RTOL."""
        others = [] if change.action == "cut" else [change]
        with torch.no_grad():
            for number in change.sites:
                outputs = self.replay.run(number, {}, others)
                for name, one in zip(self.calls[number].output_names(), outputs, strict=False):
                    was = self.replay.values[name]
                    if was.shape != one.shape:
                        return False
                    if not torch.equal(was, one) and distance(was, one) > UNCHANGED_RTOL:
                        return False
        return True

    def changed_gradients(self, change: Mutation) -> Iterator[tuple[str, Value]] | None:
        """Return the parameters whose gradient a mutation changes, the last used first, each with
        its new gradient; lazily, so that only as many calls are replayed as are asked for.

        None if the mutation changes values, acts elsewhere than at its own calls, or if its calls'
        gradients cannot be replayed.
        """
        if change.action not in LOCAL_ACTIONS or not change.sites or change.line:
            return None
        if max(change.sites) >= len(self.calls) or not self.leaves_values(change):
            return None
        near = {name for number in change.sites for name in self.calls[number].inputs}
        near |= {name for number in change.sites for name in self.calls[number].output_names()}
        return None if near & self.unreliable else self.propagate(change)

    def propagate(self, change: Mutation) -> Iterator[tuple[str, Value]]:
        """Yield the pairs of `changed_gradients`, parameter name and new gradient, for a mutation
        that it accepts.

        Raises:
            LookupError: a gradient on the way cannot be replayed.
        """
        sites = frozenset(change.sites)
        waiting: dict[str, Value] = {}
        for number in range(max(sites), -1, -1):
            names = self.calls[number].output_names()
            moved = [waiting.pop(name, None) for name in names]
            if number in sites:
                before = [self.gradients.get(name) for name in names]
                after = [add_gradients(x, y) for x, y in zip(before, moved, strict=True)]
                passed = self.input_gradients(number, after, [change])
                for name, one in self.input_gradients(number, before).items():
                    passed[name] = passed[name] - one if name in passed else -one
            elif any(one is not None for one in moved):
                passed = self.input_gradients(number, moved)
            else:
                continue
            for name, one in passed.items():
                if name in self.unreliable:
                    raise LookupError(f"the gradient of {name} cannot be replayed")
                if bool(one.any()):
                    waiting[name] = waiting[name] + one if name in waiting else one
            done = [
                name
                for name in waiting
                if name in self.parameters and self.first_consumer[name] >= number
            ]
            for name in done:
                own = self.parameters[name] + waiting.pop(name)
                yield name.removeprefix("parameter:"), own
            if not waiting and number <= min(sites):
                return
        for name, one in waiting.items():
            if name in self.parameters:
                yield name.removeprefix("parameter:"), self.parameters[name] + one


def add_gradients(x: Value | None, y: Value | None) -> Value | None:
    """Return the sum of two gradients of one shape; None stands for zero."""
    if x is None or y is None:
        return y if x is None else x
    return x + y


def distance(x: Value, y: Value) -> float:
    """Return the relative distance of two tensors of one shape; 0 if both are zero, infinite if
    one holds a number that is not finite."""
    size = max(float(x.norm()), float(y.norm()))
    if not size:
        return 0.0
    far = float((x - y).norm()) / size
    return far if far == far else float("inf")
