"""Causes between two PyTorch models: the planted cause is named, or none is."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from causes_cases import Net, inputs, mutation_keys, searched, sgd
from torch import nn
from torch.nn import functional as F

from dualml.parity.causes.mutation import Mutation
from dualml.parity.models import trace_files
from dualml.parity.models.mutation_sentences import describe_mutation
from dualml_torch.models import step
from dualml_torch.parity.causes.call_mutations import call_mutated
from dualml_torch.parity.causes.update import MutatedUpdate
from dualml_torch.parity.recorder import Recorder


class Eps(Net):
    eps = 1e-3


class Slope(Net):
    slope = 0.01


class Scale(Net):
    scale = 0.25


class Axis(Net):
    def mix(self, x: Any) -> Any:
        return torch.softmax((x @ x.transpose(1, 2)) * self.scale, 1) @ x


class NoResidual(Net):
    def added(self, x: Any, y: Any) -> Any:
        return y


class OtherFirstLayer(Net):
    def first_layer(self, x: Any) -> Any:
        return self.other(x)


class Detached(Net):
    def normed(self, x: Any) -> Any:
        return super().normed(x.detach())


class Reshaped(Net):
    def mix(self, x: Any) -> Any:
        return torch.softmax((x @ x.reshape(x.shape[0], 6, -1)) * self.scale, -1) @ x


class Half(Net):
    def mix(self, x: Any) -> Any:
        return torch.softmax(((x @ x.transpose(1, 2)) * self.scale).half(), -1).float() @ x


class Read(Net):
    """A model that selects an entry; later classes select another one."""

    def read(self, x: Any, y: Any) -> Any:
        return y.mean(1)

    def forward(self, x: Any) -> Any:
        y = self.added(x, F.leaky_relu(self.first_layer(x), self.slope))
        counts = (x > -9).float().sum(1)
        y = F.normalize(self.inner(y), dim=-1) * 3
        return self.head(self.read(x, y) * counts / 6)


class LastPosition(Read):
    def read(self, x: Any, y: Any) -> Any:
        return y[:, -1]


class Gap(Read):
    """A model that combines two functions of one value; the port uses another value."""

    def read(self, x: Any, y: Any) -> Any:
        a = torch.tanh(y)
        return (a * y.exp() + a.sin()).mean(1)


class GapOther(Gap):
    def read(self, x: Any, y: Any) -> Any:
        a = torch.tanh(y)
        return (x * y.exp() + x.sin()).mean(1) + 0 * a.mean(1)


class Floor(Read):
    def forward(self, x: Any) -> Any:
        y = self.inner(self.added(x, F.leaky_relu(self.first_layer(x), self.slope)))
        y = y / (y.norm(dim=-1, keepdim=True) + 3e-2) * 3
        return self.head(self.read(x, y))


class MaskedMean(Net):
    """A mean over the nonzero entries, and (in the subclass) over all positions."""

    def count(self, x: Any) -> Any:
        return (x > 0).float().sum(1)

    def forward(self, x: Any) -> Any:
        return self.head(self.inner(x).sum(1) / self.count(x).clamp(min=1))


class PlainMean(MaskedMean):
    def forward(self, x: Any) -> Any:
        return self.head(self.inner(x).sum(1) / 6)


class RunningMean(Net):
    """A model that keeps a running mean of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(6))

    def summary(self, x: Any) -> Any:
        return x.mean((0, 1))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.seen.copy_(self.seen * 0.9 + self.summary(x) * 0.1)
        return super().forward(x)


class RunningMax(RunningMean):
    def summary(self, x: Any) -> Any:
        return x.amax((0, 1))


class WrittenOut(Net):
    """The same computation written in other operations."""

    def normed(self, x: Any) -> Any:
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.norm.weight + self.norm.bias

    def mix(self, x: Any) -> Any:
        return F.scaled_dot_product_attention(x, x, x, scale=0.5)


class Noise(Net):
    """A model with an error that no simple cause explains."""

    def mix(self, x: Any) -> Any:
        return super().mix(x) + torch.sin(37 * x) * torch.cos(11 * x.roll(1, 0)) / 3


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (Eps, ("attribute", "set", "eps", 1e-3)),
        (Slope, ("attribute", "set", "negative_slope", 0.01)),
        (Scale, ("constant", "set", "other", 0.25)),
        (Axis, ("attribute", "set", "dim", -2)),
        (NoResidual, ("missing", "drop", 1, None)),
        (Detached, ("gradient", "detach", 0, None)),
        (Reshaped, ("missing", "drop", 0, None)),
    ],
)
def test_the_planted_mistake_is_named(kind: type[nn.Module], wanted: tuple[Any, ...]) -> None:
    found = searched(kind)
    assert found.equal
    assert len(found.causes) == 1
    assert wanted in mutation_keys(found)


@pytest.mark.parametrize("kind", [Scale, Detached])
def test_a_search_whose_runs_lie_on_a_disk_finds_the_same(
    kind: type[nn.Module], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = searched(kind)
    monkeypatch.setattr(trace_files, "SMALL_BYTES", 0)
    found = searched(kind, folder=tmp_path)
    assert mutation_keys(found) == mutation_keys(expected)
    assert (found.equal, found.place) == (expected.equal, expected.place)
    gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("base", "kind", "wanted"),
    [
        (Net, Half, ("dtype", "lower", "", "float16")),
        (MaskedMean, PlainMean, ("constant", "input", 1, ("fill", 6.0))),
        (RunningMean, RunningMax, ("function", "function", "", "amax")),
        (Gap, GapOther, ("operand", "rename", "", "input:0")),
    ],
)
def test_the_planted_mistake_of_another_model_is_named(
    base: type[nn.Module], kind: type[nn.Module], wanted: tuple[Any, ...]
) -> None:
    found = searched(kind, base=base)
    assert found.equal
    assert wanted in mutation_keys(found)


def test_a_part_of_another_value_is_named() -> None:
    found = searched(LastPosition, base=Read)
    assert found.equal
    parts = {c.value[1:] for c in found.causes[0].alterations if c.action == "operand"}
    assert parts == {(1, -1)}


def test_a_norm_with_an_epsilon_of_the_other_side_is_named() -> None:
    found = searched(Floor, base=Read)
    assert found.equal
    assert ("form", "eps_outside", 3e-2) in {one[1:] for one in mutation_keys(found)}


class Clipped(torch.optim.SGD):
    """An optimizer that clips gradients itself."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], 0.1)
        return super().step(closure)


class ClippedEach(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                torch.nn.utils.clip_grad_norm_(p, 0.1)
        return super().step(closure)


class Warm(torch.optim.SGD):
    """An optimizer whose learning rate depends on the number of updates."""

    rates: tuple[float, ...] = (1.0, 0.5, 0.25)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.done = 0

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["lr"] = 0.1 * self.rates[self.done]
        self.done += 1
        return super().step(closure)


class LateWarm(Warm):
    rates = (1.0, 0.3, 0.2)


@pytest.mark.parametrize(
    ("ours", "theirs", "argument"),
    [
        (lambda p: Clipped(p, lr=0.1), lambda p: ClippedEach(p, lr=0.1), "gradient:clip_each"),
        (lambda p: Warm(p, lr=0.1), lambda p: LateWarm(p, lr=0.1), "lr_schedule"),
        (
            lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
            lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
            "form:coupled",
        ),
    ],
)
def test_what_a_users_optimizer_does_otherwise_is_named(
    ours: Any, theirs: Any, argument: str
) -> None:
    found = searched(Net, theirs, 3, ours=ours)
    assert found.enough
    assert argument in {one.argument for one in found.causes[0].alterations}


def test_a_refused_setting_is_not_left_in_the_optimizer() -> None:
    p = nn.Parameter(torch.ones(2, 2))
    optimizer = sgd([p])
    p.grad = torch.ones(2, 2)
    change = Mutation("optimizer", "optimizer", (), "", "lr", 3.0)

    def refuse() -> None:
        assert optimizer.param_groups[0]["lr"] == 3.0
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        MutatedUpdate(optimizer, [change], {id(p): "p"}).step(refuse)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_a_variance_is_remembered_as_it_divides() -> None:
    x = inputs()[0].flatten(0, 1)
    mean, variance = torch.zeros(6), torch.ones(6)
    change = Mutation("attribute", "form", (0,), "batch_norm", "unbiased_state", False)
    given = (x, mean, variance, None, None, True, 0.1)
    y = call_mutated(change, F.batch_norm, "batch_norm", given, {})
    assert torch.equal(y, F.batch_norm(x, None, None, training=True))
    assert torch.allclose(variance, 0.9 + 0.1 * x.var(0, unbiased=False))


def test_a_loss_that_is_a_difference_of_larger_terms_rounds_as_they_do() -> None:
    torch.manual_seed(0)
    model = nn.Linear(6, 4)

    def divergence(outputs: Any, targets: Any) -> Any:
        near = torch.softmax(outputs.detach() + 0.01 * torch.arange(4), -1)
        return F.kl_div(F.log_softmax(outputs, -1), near, reduction="batchmean")

    recorder = Recorder(model, None, None, steps=1, draws=2)
    recorder.run(step(model, divergence, None, recorder, False), inputs()[0][:, 0])
    assert recorder.trace.envelope_width("loss", 1, "loss") > 1e-4
    assert recorder.trace.envelope_width("forward", 1, "(output)") < 1e-5


def test_another_modules_weights_are_named() -> None:
    found = searched(OtherFirstLayer)
    assert found.equal
    assert {(one.action, one.argument, one.value) for one in found.causes[0].alterations} & {
        ("borrow", "inner", "other")
    }


@pytest.mark.parametrize(
    ("theirs", "argument"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), "momentum"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), "form:nesterov"),
        (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), "lr_factor"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2), "weight_decay"),
        (lambda p: torch.optim.SGD(list(p)[2:], lr=0.1, momentum=0.9), "skip"),
    ],
)
def test_what_an_optimizer_does_otherwise_is_named(theirs: Any, argument: str) -> None:
    found = searched(Net, theirs, 3)
    assert found.equal
    assert argument in {one.argument for one in found.causes[0].alterations}


def test_the_same_model_cut_otherwise_needs_no_cause() -> None:
    found = searched(WrittenOut)
    assert found.equal
    assert found.causes == []


def test_nothing_is_named_where_nothing_explains() -> None:
    found = searched(Noise)
    assert not found.equal
    assert found.causes == []
    assert found.place is not None
    assert found.place.place is not None
    assert found.tried[0] > 100


def test_the_watch_changes_nothing_and_sees_parts_of_attention() -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(6, 2, batch_first=True)

    def loss(outputs: Any, targets: Any) -> Any:
        return outputs[0].square().mean()

    x = inputs()[0]
    recorder = Recorder(model, None, None, steps=1, draws=0)

    class SelfAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = model

        def forward(self, x: Any) -> Any:
            return self.attention(x, x, x, need_weights=False)

    whole = SelfAttention()
    plain = whole(x)[0]
    recorder = Recorder(whole, None, None, steps=1, draws=0)
    recorder.run(step(whole, loss, None, recorder, False), x)
    np.testing.assert_allclose(  # the fused kernel is written out, which rounds otherwise
        recorder.trace.arrays["forward/00000001/(output)[0]"], plain.detach().numpy(), atol=1e-6
    )
    names = [one.name for one in recorder.trace.operations]
    assert not {"multi_head_attention_forward", "scaled_dot_product_attention"} & set(names)
    assert {"linear", "softmax", "matmul"} <= set(names)


@pytest.mark.parametrize("decay", [2e-4, 1.5e-4, 3.7e-3])
def test_any_weight_decay_is_found_from_the_first_update(decay: float) -> None:
    def make_sgd(parameters: Any) -> Any:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)

    def make_other_decay(parameters: Any) -> Any:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=decay)

    found = searched(Net, make_other_decay, ours=make_sgd, steps=3)
    assert found.equal
    assert mutation_keys(found)[0] == ("optimizer", "optimizer", "weight_decay", decay)


def grouped(parameters: Any, matrices: float, vectors: float) -> Any:
    """Return AdamW with one weight decay for matrices and another one for vectors."""
    listed = list(parameters)
    groups = [
        {"params": [p for p in listed if p.dim() > 1], "weight_decay": matrices},
        {"params": [p for p in listed if p.dim() == 1], "weight_decay": vectors},
    ]
    return torch.optim.AdamW(groups, lr=0.01)


def test_exchanged_groups_of_an_optimizer_are_one_cause() -> None:
    found = searched(Net, lambda p: grouped(p, 0.0, 0.1), ours=lambda p: grouped(p, 0.1, 0.0))
    kind, action, argument, value = mutation_keys(found)[0]
    assert (kind, action, argument) == ("optimizer", "optimizer", "exchange:weight_decay")
    assert value == (0.1, 0.0)
    assert found.equal
    said = describe_mutation("en", vars(found.causes[0].alterations[0]))
    assert "`weight_decay`" in said
    assert "0, 0.1, the first for" in said
