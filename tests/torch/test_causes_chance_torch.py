"""Causes that one call alone does not show: dropout on one side only, small numbers in many calls,
a norm with an activation that the port has beside the original."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from causes_cases import Net, searched
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("one_thread")


class Plain(Net):
    """Blocks with a Dropout that drops nothing."""

    rate = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.drop = nn.Dropout(self.rate)

    def forward(self, x: Any) -> Any:
        for one in self.linears:
            x = x + self.drop(one(self.inner(x)))
        return self.head(x[:, 0])


class Dropping(Plain):
    rate = 0.25


class DroppingTwice(Dropping):
    """A model with dropout in every block, and a ReLU before the head."""

    def forward(self, x: Any) -> Any:
        for one in self.linears:
            x = x + self.drop(one(self.inner(x)))
        return self.head(x[:, 0].relu())


class Unknown(Plain):
    """A model with another activation, and a last operation that nothing explains."""

    depth = 14

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(6, 6) for _ in range(self.depth))

    def forward(self, x: Any) -> Any:
        for one in self.linears:
            x = self.active(one(x)) + x
        return self.last_operation(self.head(x[:, 0]))

    def active(self, x: Any) -> Any:
        return F.silu(x)

    def last_operation(self, x: Any) -> Any:
        return x


class OtherUnknown(Unknown):
    def active(self, x: Any) -> Any:
        return F.relu(x)

    def last_operation(self, x: Any) -> Any:
        return x * torch.linspace(0.1, 0.9, x.numel()).view_as(x).sin() + (x**3).cos()


class UnknownAlone(OtherUnknown):
    active = Unknown.active


class Deep(Net):
    """Layers with small inputs, so that epsilon matters."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    eps = 1e-5

    def forward(self, x: Any) -> Any:
        for one in self.linears:
            x = F.layer_norm(one(x), (6,), eps=self.eps)
        return self.head(x[:, 0])


class OtherEpsilon(Deep):
    eps = 1e-6


class Convolved(Net):
    added = False

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 6, 1, bias=False)
        if self.added:
            self.behind = nn.BatchNorm1d(6)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        y = F.silu(self.behind(y)) if self.added else y
        return self.head((x + self.inner(y))[:, 0])


class Normed(Convolved):
    added = True


class TwoSettings(Deep):
    """A model with two settings of one call."""

    momentum = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm1d(6, self.eps, self.momentum) for _ in range(4))

    def forward(self, x: Any) -> Any:
        for one, norm in zip(self.linears, self.norms, strict=True):
            x = one(norm(x))
        return self.head(x[:, 0])


class OtherSettings(TwoSettings):
    eps, momentum = 1e-3, 0.01


class DiagonalSoftmaxGradient(Net):
    """A softmax with MindSpore's gradient for an axis of length one."""

    def mix(self, x: Any) -> Any:
        scores = (x @ x.transpose(1, 2)) * self.scale
        weights = torch.softmax(scores, -1)
        slope = (weights * (1 - weights)).detach()
        return (weights.detach() + (scores - scores.detach()) * slope) @ x


def test_a_dropout_that_only_the_port_has() -> None:
    found = searched(Dropping, base=Plain)
    assert found.equal
    change = found.causes[0].alterations[0]
    assert (change.kind, change.action, change.value) == ("extra", "dropout", 0.25)
    assert len(change.sites) == 2


def test_what_is_wrong_behind_a_dropout_that_only_the_port_has() -> None:
    found = searched(DroppingTwice, base=Plain)
    assert found.equal
    assert {one.alterations[0].action for one in found.causes} >= {"dropout"}
    assert len(found.causes) == 2


def test_what_most_of_the_lost_values_confirm_is_named_though_something_is_left() -> None:
    found = searched(OtherUnknown, base=Unknown)
    assert not found.enough
    changes = found.causes[0].alterations
    assert changes[0].value == ("relu",)
    assert len(changes[0].sites) == Unknown.depth


def test_what_nothing_explains_has_no_name() -> None:
    assert not searched(UnknownAlone, base=Unknown).causes


def test_a_dropout_that_the_port_lacks() -> None:
    found = searched(Plain, base=Dropping)
    assert found.equal
    changes = found.causes[0].alterations
    assert {"p", "drop"} & {str(one.argument) or one.action for one in changes}


def test_the_other_sides_own_epsilon_goes_first() -> None:
    found = searched(OtherEpsilon, base=Deep)
    assert found.equal
    change = found.causes[0].alterations[0]
    assert (change.argument, change.value, change.old) == ("eps", 1e-6, 1e-5)
    assert len(change.sites) == 4


def test_a_norm_and_its_activation_more() -> None:
    found = searched(Normed, base=Convolved)
    change = found.causes[0].alterations[0]
    assert (change.kind, change.action, change.value) == ("extra", "output", ("batch_norm", "silu"))


def test_a_softmax_with_a_wrong_gradient() -> None:
    found = searched(DiagonalSoftmaxGradient)
    assert found.equal
    assert found.causes[0].alterations[0].argument == "alone"


def test_two_settings_of_one_call() -> None:
    found = searched(OtherSettings, base=TwoSettings)
    assert found.equal
    changes = [cause.alterations[0] for cause in found.causes]
    assert [(one.argument, len(one.sites)) for one in changes] == [("eps", 4), ("momentum", 4)]
    assert changes[1].value == pytest.approx(0.01)
