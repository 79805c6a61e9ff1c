"""Blocks of a MindSpore model that run with weights of the caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

from dualml.parity.models.lockstep.structure import flatten
from dualml_ms.parity.blocks import BlockAccess, building_empty, is_tensor


@pytest.fixture(autouse=True)
def _pynative() -> Iterator[None]:
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=mode)


class Net(nn.Cell):
    """An embedding, two layers with a table beside them, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(10, 6)
        self.layers = nn.CellList([nn.Dense(6, 6) for _ in range(2)])
        self.norm = nn.BatchNorm1d(6)
        self.table = ms.Tensor(np.arange(6, dtype=np.float32))
        self.head = nn.Dense(6, 3)

    def construct(self, tokens: Any) -> Any:
        x = self.emb(tokens)
        for layer in self.layers:
            x = ops.tanh(layer(x)) * self.table
        return self.head(x)


BLOCKS = ("emb", "layers.0", "layers.1", "head")


class Call:
    """A call of a block with the weights of another model, whose gradients are kept."""

    def __init__(
        self, access: BlockAccess, source: nn.Cell, place: tuple[str, Any], found: dict[str, Any]
    ) -> None:
        (self.name, self.rebuild), self.access, self.found = place, access, found
        named = source.parameters_and_names()
        self.weights = {
            name: ms.Tensor(p.asnumpy()) for name, p in named if name.startswith(f"{self.name}.")
        }

    def forward(self, tensors: Sequence[Any]) -> list[Any]:
        self.tensors = [ms.Tensor(one.asnumpy()) for one in tensors]
        output = self.access.run(self.name, dict(self.weights), tensors, self.rebuild)
        found, self.rebuild_output = flatten(output, is_tensor)
        return found

    def backward(self, gradients: Sequence[Any]) -> list[Any]:
        of_weights, of_inputs = self.access.differentiate(
            self.name, dict(self.weights), self.tensors, self.rebuild, gradients
        )
        self.found |= of_weights
        return of_inputs


def make_pair() -> tuple[nn.Cell, BlockAccess, dict[str, Any]]:
    """Return a model, access to an empty one whose blocks get its weights, and the gradients."""
    ms.set_seed(0)
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


TOKENS = ms.Tensor(np.array([[1, 2, 3], [4, 5, 9]], np.int32))


def test_an_empty_model_has_statistics_and_no_weights() -> None:
    _, access, _ = make_pair()
    empty = access.empty_parameters()
    assert "head.weight" in empty
    assert "norm.moving_variance" not in empty
    assert all(access.names[name].has_init for name in empty)
    assert access.names["norm.moving_variance"].asnumpy().tolist() == [1] * 6
    assert not nn.Dense(2, 2).weight.has_init


def test_blocks_compute_what_the_whole_model_does() -> None:
    whole, access, found = make_pair()
    np.testing.assert_array_equal(access.forward([TOKENS]).asnumpy(), whole(TOKENS).asnumpy())
    value, rest = access.step(lambda y, _: (y**2).mean(), [TOKENS], None)
    weights = [p for n, p in whole.parameters_and_names() if n.split(".")[0] != "norm"]
    names = [p.name for p in weights if p.requires_grad]
    trained = ms.ParameterTuple([p for p in weights if p.requires_grad])
    expected, gradients = ms.value_and_grad(lambda: (whole(TOKENS) ** 2).mean(), None, trained)()
    assert float(value) == float(expected)
    assert rest == {}
    assert set(found) == set(names)
    for name, gradient in zip(names, gradients, strict=True):
        np.testing.assert_allclose(found[name].asnumpy(), gradient.asnumpy(), rtol=1e-5, atol=1e-7)
    assert access.names["head.weight"].has_init  # dropped again


def test_parameters_outside_of_blocks_are_loaded_for_good() -> None:
    whole, access, _ = make_pair()
    named = dict(whole.parameters_and_names())
    access.load({name: ms.Tensor(named[name].asnumpy()) for name in ("head.weight", "head.bias")})
    bias = access.model.head.bias.asnumpy()
    np.testing.assert_array_equal(bias, named["head.bias"].asnumpy())
    _, rest = access.step(lambda y, _: y.sum(), [TOKENS], None)
    assert set(rest) == {"head.weight", "head.bias"}


def test_shared_parameters_are_known() -> None:
    class Tied(Net):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Dense(6, 10, has_bias=False)
            self.head.weight = self.emb.embedding_table

    with building_empty():
        access = BlockAccess(Tied(), "float32")
    assert access.shared_parameters() == ["emb.embedding_table"]


def test_the_use_of_an_empty_parameter_is_known() -> None:
    with building_empty():
        access = BlockAccess(Net(), "float32")
    with pytest.raises(RuntimeError) as raised:
        access.model.head(ms.Tensor(np.ones((1, 6), np.float32))).asnumpy()
    assert access.is_missing_weight(raised.value)
    assert not access.is_missing_weight(ValueError("uninitialized"))
