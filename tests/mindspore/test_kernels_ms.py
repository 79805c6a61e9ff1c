"""Cells run as graphs, and layers composed of other kernels than MindSpore's own."""

from __future__ import annotations

import pytest

pytest.importorskip("mindspore")

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml.algorithms.model.layers import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Tanh
from dualml.parity.finder.causes.layers import rational_tanh
from dualml_ms.algorithms.model import LOSSES, ModelPart, modules
from dualml_ms.common import compiled
from dualml_ms.common.compiled import CompiledCell
from dualml_ms.parallel.split_tape import SegmentTape


class Slope(nn.Cell):
    """A cell's output, and its input gradient for a given output gradient."""

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__()
        self.cell, self.slope = cell, ops.GradOperation(sens_param=True)

    def construct(self, x, gradient):
        return self.cell(x), self.slope(self.cell)(x, gradient)


class Loss(nn.Cell):
    """A loss and its gradient."""

    def __init__(self, loss: nn.Cell) -> None:
        super().__init__()
        self.both = ops.value_and_grad(loss, 0)

    def construct(self, x, labels):
        return self.both(x, labels)


@pytest.fixture(autouse=True)
def graph_mode() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.mark.parametrize("private", [True, False])
def test_a_graph_by_name_is_the_cell(private: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named graph equals the cell for every shape, with current parameter values, also without
    private functions."""
    if not private:
        monkeypatch.setattr(compiled, "RUN", None)
    cell = nn.Dense(3, 2)
    fast = CompiledCell(cell)
    for n in (1, 4, 1, 4):
        x = ms.Tensor(np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32))
        np.testing.assert_array_equal(fast(x).asnumpy(), cell(x).asnumpy())
        cell.weight.set_data(cell.weight + 1.0)
        np.testing.assert_array_equal(fast(x).asnumpy(), cell(x).asnumpy())
    assert len(fast.graphs) == (2 if private else 0)


@pytest.mark.parametrize("size", [(6, 8), (7, 6), (6, 7)])
@pytest.mark.parametrize("kernel", [2, 3])
def test_pooling_has_the_bits_of_the_kernel(size: tuple[int, int], kernel: int) -> None:
    """Pooling has the kernel's bits, also on ties: the first maximum, row by row, gets the
    gradient."""
    draw = np.random.default_rng(0)
    x = ms.Tensor(draw.integers(0, 3, (2, 3, *size)).astype(np.float32))
    own = modules.MaxPool2d(kernel, stride=kernel, padding=0)
    other = nn.MaxPool2d(kernel_size=kernel, stride=kernel, pad_mode="valid")
    gradient = ms.Tensor(draw.normal(size=other(x).shape).astype(np.float32))
    for a, b in zip(Slope(own)(x, gradient), Slope(other)(x, gradient), strict=True):
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4)])
@pytest.mark.parametrize("size", [1.0, 300.0])
def test_cross_entropy_is_the_framework_s(shape: tuple[int, ...], size: float) -> None:
    """Cross-entropy equals the framework's, also when a label's probability underflows float32."""
    draw = np.random.default_rng(0)
    logits = (size * draw.normal(size=shape)).astype(np.float32)
    labels = draw.integers(0, 4, shape[:-1]).astype(np.int32)
    found = Loss(LOSSES["cross_entropy"]())(ms.Tensor(logits), ms.Tensor(labels))
    flat = ms.Tensor(logits.reshape(-1, 4)), ms.Tensor(labels.reshape(-1))
    expected = Loss(nn.CrossEntropyLoss())(*flat)
    np.testing.assert_allclose(found[0].asnumpy(), expected[0].asnumpy(), rtol=1e-6)
    gradient = expected[1].asnumpy().reshape(shape)
    np.testing.assert_allclose(found[1].asnumpy(), gradient, atol=1e-7)


@pytest.mark.parametrize(("wanted", "kept"), [(False, (0, 2, 3)), (True, (0, 2, 3))])
def test_a_tape_has_what_derivatives_need_and_no_copy_for_flatten(
    wanted: bool, kept: tuple[int, ...]
) -> None:
    """A tape of convolution, ReLU, pooling, Flatten and Linear saves what derivatives need, and no
    copy for Flatten: Linear uses Flatten's input."""
    layers = (
        ("conv", Conv2d(1, 2, 3, 1)),
        ("relu", ReLU()),
        ("pool", MaxPool2d(2)),
        ("flatten", Flatten()),
        ("fc", Linear(8, 3)),
    )
    tape = SegmentTape(ModelPart(layers), wanted)
    assert tape.kept == kept
    assert tape.top_numbers == [0, 2, 2, 3, 3]


def test_of_a_tanh_at_the_end_what_it_gave_is_kept() -> None:
    tape = SegmentTape(
        ModelPart((("flatten", Flatten()), ("fc", Linear(4, 3)), ("tanh", Tanh()))), False
    )
    assert (tape.first, tape.kept, tape.top_numbers) == (1, (0, 3), [0, 0, 3])


def test_tanh_is_the_approximation_that_the_finder_names() -> None:
    """Compare MindSpore's tanh with `rational_tanh`, by which the finder explains differences."""
    x = np.linspace(-7, 7, 5601, dtype=np.float32)
    tanh = ops.tanh(ms.Tensor(x)).asnumpy()
    assert np.abs(tanh - rational_tanh(x.astype(np.float64))).max() < 5e-7
    assert np.abs(tanh - np.tanh(x.astype(np.float64))).max() > 5e-5
