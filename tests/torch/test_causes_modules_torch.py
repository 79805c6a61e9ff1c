"""Causes beyond a single call: outputs, tables, biases, blocks, gradients alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from causes_cases import Net, explained, inputs, mutation_keys, searched, sgd, trace
from torch import nn
from torch.nn import functional as F

from dualml.parity.causes.explainer import expand_fused
from dualml_torch.models import losses, step
from dualml_torch.parity.causes.explore import Explorer, MutatingRecorder

pytestmark = pytest.mark.usefixtures("one_thread")


class Two(Net):
    """A model with two outputs, of which the loss takes the first."""

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        return self.head(y[:, 0]), self.head(y[:, 1])


class Exchanged(Two):
    def forward(self, x: Any) -> Any:
        return super().forward(x)[::-1]


class Table(Net):
    """A table lookup by an index that nothing computes."""

    order = (0, 3, 1, 5, 2, 2)

    def __init__(self) -> None:
        super().__init__()
        self.index = torch.tensor(self.order)

    def forward(self, x: Any) -> Any:
        return self.head((x + self.inner(x)[:, :, self.index])[:, 1])


class OtherTable(Table):
    order = (0, 1, 3, 5, 4, 2)


class NoBias(Net):
    bias = False

    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.Linear(6, 6, bias=False)
        if self.bias:
            self.middle.bias = nn.Parameter(torch.linspace(0.1, 0.6, 6))

    def first_layer(self, x: Any) -> Any:
        return self.middle(self.inner(x))


class Bias(NoBias):
    bias = True


class Block(nn.Module):
    cut = False

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(6), nn.LayerNorm(6)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.one(x)) if self.cut else self.one(x)
        z = self.two(y.flip(-1) + x)
        return torch.relu(z) if self.cut else z


class BlockCut(Block):
    cut = True


class Blocks(Net):
    """Two stages of two blocks without activations."""

    second: type[Block] = Block

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.ModuleDict({"a1": Block(), "a2": self.second()}) for _ in range(2)
        )

    def forward(self, x: Any) -> Any:
        for stage in self.stages:
            x = x + stage["a2"](stage["a1"](self.inner(x)))
        return self.head(x[:, 0])


class BlocksCut(Blocks):
    second = BlockCut


class Norms(Net):
    """Two norms whose values are equal until they learn."""

    def __init__(self) -> None:
        super().__init__()
        self.later = nn.LayerNorm(6)

    def forward(self, x: Any) -> Any:
        y = self.normalise(x)
        return self.head(self.later(x + self.inner(y))[:, 0])

    def normalise(self, x: Any) -> Any:
        return self.norm(x)


class WrongNorm(Norms):
    def normalise(self, x: Any) -> Any:
        return self.later(x)


@pytest.mark.parametrize(
    ("base", "kind", "wanted"),
    [
        (Two, Exchanged, ("layout", "returned")),
        (Table, OtherTable, ("constant", "numbers")),
        (NoBias, Bias, ("extra", "bias")),
        (Norms, WrongNorm, ("operand", "borrow")),
    ],
)
def test_the_cause_is_named(
    base: type[nn.Module], kind: type[nn.Module], wanted: tuple[str, str]
) -> None:
    found = searched(kind, base=base)
    assert found.equal
    assert wanted in {(one.kind, one.action) for one in found.causes[0].alterations}


def test_all_calls_of_a_block_and_of_its_like_in_other_stages() -> None:
    found = searched(BlocksCut, base=Blocks)
    assert found.equal
    (cause,) = found.causes
    assert len(cause.alterations[0].sites) == 4


class Fused(Net):
    """A model that computes its own loss in one call."""

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        return self.head(y[:, 0]) + self.penalty(y, x)

    def penalty(self, y: Any, x: Any) -> Any:
        return F.mse_loss(y, x)


class SquaredTwice(Fused):
    def penalty(self, y: Any, x: Any) -> Any:
        return (y - x).square().square().mean()


def test_inside_of_a_fused_function() -> None:
    assert not searched(SquaredTwice, base=Fused).causes
    a, b = trace(Fused, sgd, 2), trace(SquaredTwice, sgd, 2)
    torch.manual_seed(0)
    model = Fused()
    recorder = MutatingRecorder(model, None, sgd(model.parameters()), steps=2, draws=0)
    loss = losses()["cross_entropy"]
    explorer = Explorer(recorder, lambda r: step(model, loss, r.optimizer, r), inputs(), 2)
    parts = expand_fused(explorer, a)
    assert parts is not None
    assert {"sub", "square"} <= {one.name for one in parts.operations}
    found = explained(parts, replace(b), explorer)
    assert found.equal
    change = found.causes[0].alterations[0]
    assert (change.kind, change.operation) == ("extra", "square")


class Unbiased(Net):
    """A model without two biases, of functions with the same name."""

    def __init__(self) -> None:
        super().__init__()
        self.inner.bias = self.other.bias = None


def test_a_bias_that_the_other_side_does_not_have() -> None:
    found = searched(Unbiased)
    assert found.equal
    assert mutation_keys(found)[0] == ("missing", "input", 2, ("neutral",))
    assert len(found.causes) == 1
    assert len(found.causes[0].alterations[0].sites) == 2


class Strided(nn.Module):
    """Convolutions; 'same' padding changes only the one with stride two."""

    padding = 1

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, stride=2)
        self.c, self.head = nn.Conv2d(4, 4, 1), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = self.a(x[:, None]).tanh()
        y = F.conv2d(self.uneven(y), self.b.weight, self.b.bias, 2, self.padding).tanh()
        return self.head(self.c(y).mean((2, 3)))

    def uneven(self, x: Any) -> Any:
        return x


class StridedSame(Strided):
    padding = 0

    def uneven(self, x: Any) -> Any:
        return F.pad(x, (0, 1, 0, 1))


def test_an_alteration_stands_only_where_it_changes_something() -> None:
    found = searched(StridedSame, base=Strided)
    change = found.causes[0].alterations[0]
    assert (change.action, change.value) == ("pad", "same")
    place = found.causes[0].place
    assert place is not None
    assert (len(change.sites), place.number) == (1, change.sites[0])
    assert place.attributes["stride"] == [2, 2] or place.attributes["stride"] == 2
