"""Gradients under a mutation, from the backward pass of the calls on the way alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from causes_cases import Net, inputs
from torch import nn
from torch.nn import functional as F

from dualml.parity.causes.mutation import Mutation
from dualml.parity.models.operations import Operation
from dualml_torch.models import losses, step
from dualml_torch.parity.causes.backward import distance
from dualml_torch.parity.causes.explore import Explorer, MutatingRecorder


class Tied(Net):
    """A parameter that two calls use, a value that three use, and one that is detached."""

    def added(self, x: Any, y: Any) -> Any:
        return x + y * torch.sigmoid(self.inner(y.detach()))

    def forward(self, x: Any) -> Any:
        y = super().added(self.inner(x), x)
        y = self.added(y, self.other(self.mix(self.normed(y))))
        return self.head(F.dropout(y, 0.5)[:, 0])


class Rounded(Net):
    """A function whose backward pass is not that of its calls."""

    def mix(self, x: Any) -> Any:
        return Doubled.apply(super().mix(x))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x + 0

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return 2 * g


def explorer_of(kind: type[nn.Module]) -> Explorer:
    torch.manual_seed(0)
    recorder = MutatingRecorder(kind(), None, None, steps=1, draws=0)
    loss = losses()["cross_entropy"]
    return Explorer(recorder, lambda r: step(r.model, loss, None, r), inputs(), 1)


def mutations(calls: list[Operation]) -> list[Mutation]:
    found = [
        Mutation("gradient", "detach", (one.number,), one.name, at)
        for one in calls
        for at in ["", *range(len(one.inputs))]
    ]
    found += [Mutation("gradient", "cut", (n, n + 1), "", f"op:{n - 1}") for n in range(1, 9)]
    found += [
        Mutation("gradient", "form", (one.number,), one.name, "detached", True)
        for one in calls
        if one.name == "layer_norm"
    ]
    return [
        *found,
        *(
            Mutation("gradient", "attach", (one.number,), one.name)
            for one in calls
            if one.name == "detach"
        ),
    ]


@pytest.mark.parametrize("kind", [Net, Tied])
def test_slices_give_the_gradients_of_a_whole_backward_pass(kind: type[nn.Module]) -> None:
    explorer = explorer_of(kind)
    explorer.record([])
    assert explorer.replay is not None
    base = explorer.gradients([])
    told = 0
    for change in mutations(explorer.replay.tape.calls):
        rows = explorer.changed_gradients([], change)
        if rows is None:
            continue
        found = {**base, **dict(rows)}
        try:
            whole = explorer.gradients([change])
        except RuntimeError:  # nothing is left of the backward pass
            whole = {name: np.zeros_like(array) for name, array in base.items()}
        told += 1
        for name, array in whole.items():
            assert np.allclose(array, found[name], rtol=1e-4, atol=1e-7), (change, name)
    assert told > 40


def test_calls_without_an_effect_are_not_replayed() -> None:
    explorer = explorer_of(Net)
    explorer.record([])
    backward: Any = None
    last = next(one for one in explorer.replay.tape.calls if one.module == "head")  # type: ignore[union-attr]
    change = Mutation("gradient", "detach", (last.number,), last.name, 1)
    assert explorer.changed_gradients([], change) is not None
    backward = explorer.backward
    calls: list[int] = []
    run = backward.replay.run
    backward.replay.run = lambda number, *rest: calls.append(number) or run(number, *rest)
    assert [name for name, _ in explorer.changed_gradients([], change) or ()] == ["head.weight"]
    assert set(calls) == {last.number}


def test_a_mutation_of_values_needs_a_whole_backward_pass() -> None:
    explorer = explorer_of(Net)
    explorer.record([])
    norm = next(one for one in explorer.replay.tape.calls if one.name == "layer_norm")  # type: ignore[union-attr]
    change = Mutation("attribute", "set", (norm.number,), "layer_norm", "eps", 0.1, 1e-5)
    assert explorer.changed_gradients([], change) is None


def test_calls_whose_backward_pass_is_not_recorded_are_not_trusted() -> None:
    explorer = explorer_of(Rounded)
    explorer.record([])
    calls = explorer.replay.tape.calls  # type: ignore[union-attr]
    norm = next(one for one in calls if one.name == "layer_norm")
    change = Mutation("gradient", "detach", (norm.number,), "layer_norm", 0)
    explorer.changed_gradients([], change)
    assert explorer.backward is not None
    assert explorer.backward.unreliable


def test_a_replay_has_no_copy_of_the_weights() -> None:
    explorer = explorer_of(Net)
    explorer.record([])
    assert explorer.replay is not None
    for name, value in explorer.weights.items():
        assert explorer.replay.values.get(f"parameter:{name}", value) is value
    trace = explorer.run([])
    for name, value in trace.initial_parameters().items():
        assert np.shares_memory(value, explorer.weights[name].numpy())


def test_distance_of_gradients() -> None:
    x = torch.ones(3)
    assert distance(x, x) == 0.0
    assert distance(0 * x, 0 * x) == 0.0
    assert distance(x, 2 * x) == pytest.approx(0.5)
    assert distance(x, x * float("nan")) == float("inf")
