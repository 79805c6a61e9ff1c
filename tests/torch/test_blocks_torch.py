"""Blocks of a PyTorch model that run with weights of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dualml.parity.models.lockstep.structure import flatten
from dualml_torch.parity.blocks import BlockAccess, building_empty


class Net(nn.Module):
    """An embedding, two layers with a table beside them, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(10, 6)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.register_buffer("table", torch.arange(6.0))
        self.head = nn.Linear(6, 3)

    def forward(self, tokens: Any) -> Any:
        x = self.emb(tokens)
        for layer in self.layers:
            x = torch.tanh(layer(x)) * self.table
        return self.head(x)


BLOCKS = ("emb", "layers.0", "layers.1", "head")


class Call:
    """A call of a block with the weights of another model, whose gradients are kept."""

    def __init__(
        self, access: BlockAccess, source: nn.Module, place: tuple[str, Any], found: dict[str, Any]
    ) -> None:
        (self.name, self.rebuild), self.access, self.found = place, access, found
        named = source.named_parameters()
        self.weights = {
            name: p.detach().clone() for name, p in named if name.startswith(f"{self.name}.")
        }

    def forward(self, tensors: Sequence[Any]) -> list[Any]:
        self.tensors = tensors
        output = self.access.run(self.name, dict(self.weights), tensors, self.rebuild)
        found, self.rebuild_output = flatten(output, torch.is_tensor)
        return found

    def backward(self, gradients: Sequence[Any]) -> list[Any]:
        of_weights, of_inputs = self.access.differentiate(
            self.name, dict(self.weights), self.tensors, self.rebuild, gradients
        )
        self.found |= of_weights
        return of_inputs


def make_pair() -> tuple[nn.Module, BlockAccess, dict[str, Any]]:
    """Return a model, access to an empty one whose blocks get its weights, and the gradients."""
    torch.manual_seed(0)
    whole = Net()
    with building_empty():
        access, found = BlockAccess(Net(), "float32"), {}
    for name in BLOCKS:
        access.intercept(
            name,
            lambda block, tensors, rebuild: Call(access, whole, (block, rebuild), found),
            differentiated=True,
        )
    return whole, access, found


TOKENS = torch.tensor([[1, 2, 3], [4, 5, 9]])


def test_an_empty_model_has_buffers_and_no_weights() -> None:
    _, access, _ = make_pair()
    assert all(p.is_meta for p in access.model.parameters())
    assert access.model.table.tolist() == [0, 1, 2, 3, 4, 5]
    assert access.empty_parameters() == [name for name, _ in Net().named_parameters()]
    assert not nn.Linear(2, 2).weight.is_meta


def test_blocks_compute_what_the_whole_model_does() -> None:
    whole, access, found = make_pair()
    assert torch.equal(access.forward([TOKENS]), whole(TOKENS))
    value, rest = access.step(lambda y, _: (y**2).mean(), [TOKENS], None)
    (whole(TOKENS) ** 2).mean().backward()
    assert value == (whole(TOKENS) ** 2).mean()
    assert rest == {}
    assert set(found) == {name for name, _ in whole.named_parameters()}
    for name, p in whole.named_parameters():
        np.testing.assert_allclose(found[name], p.grad, rtol=1e-6, atol=1e-8)
    assert all(p.is_meta for p in access.model.parameters())  # dropped again


def test_parameters_outside_of_blocks_are_loaded_for_good() -> None:
    whole, access, _ = make_pair()
    access.load({"head.weight": whole.head.weight.detach(), "head.bias": whole.head.bias.detach()})
    assert "head.weight" not in access.empty_parameters()
    assert torch.equal(access.model.head.bias, whole.head.bias)
    _, rest = access.step(lambda y, _: y.sum(), [TOKENS], None)
    assert set(rest) == {"head.weight", "head.bias"}


def test_shared_parameters_stay_one() -> None:
    class Tied(Net):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 10, bias=False)
            self.head.weight = self.emb.weight

    with building_empty():
        access = BlockAccess(Tied(), "float32")
    assert access.shared_parameters() == ["emb.weight"]
    access.load({"emb.weight": torch.ones(10, 6)})
    assert access.model.head.weight is access.model.emb.weight


def test_the_use_of_an_empty_parameter_is_known() -> None:
    with building_empty():
        access = BlockAccess(Net(), "float32")
    with pytest.raises((RuntimeError, NotImplementedError)) as raised:
        access.model.head(torch.ones(1, 6))
    assert access.is_missing_weight(raised.value)
    assert not access.is_missing_weight(ValueError("meta"))


def test_low_precision_is_that_of_weights_and_buffers() -> None:
    with building_empty():
        access = BlockAccess(Net(), "bfloat16")
    assert access.model.table.dtype == torch.bfloat16
    assert access.model.head.weight.dtype == torch.bfloat16
