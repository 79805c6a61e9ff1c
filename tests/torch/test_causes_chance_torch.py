"""Causes that one call alone does not show: what only one side drops, small numbers in many calls,
a norm with its activation that the port has beside the original."""

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


class Deep(Net):
    """Layers whose inputs are small, so that an epsilon counts."""

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


class Settled(Deep):
    """Two settings of one call."""

    momentum = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm1d(6, self.eps, self.momentum) for _ in range(4))

    def forward(self, x: Any) -> Any:
        for one, norm in zip(self.linears, self.norms, strict=True):
            x = one(norm(x))
        return self.head(x[:, 0])


class OtherSettings(Settled):
    eps, momentum = 1e-3, 0.01


class Alone(Net):
    """A softmax with the gradient that MindSpore gives after an axis of length one."""

    def mixed(self, x: Any) -> Any:
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
    found = searched(Alone)
    assert found.equal
    assert found.causes[0].alterations[0].argument == "alone"


def test_two_settings_of_one_call() -> None:
    found = searched(OtherSettings, base=Settled)
    assert found.equal
    changes = [cause.alterations[0] for cause in found.causes]
    assert [(one.argument, len(one.sites)) for one in changes] == [("eps", 4), ("momentum", 4)]
    assert changes[1].value == pytest.approx(0.01)
