"""The recorded gradient equals autograd's bit for bit, and covers everything that autograd does."""

from __future__ import annotations

import os

import numpy as np
import pytest

if "torch" in os.environ.get("DUALML_REQUIRE", "").split(","):
    import torch
else:
    torch = pytest.importorskip("torch")
from torch import nn

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import SGD, Adam
from dualml.backend import TrainingSpec
from dualml.backend.shard import FlatLayout
from dualml.parallel.zero.units import make_segments
from dualml_torch.algorithms.model import LOSSES, Network
from dualml_torch.algorithms.recorded_gradient import (
    INPLACE_VARIANTS,
    RecordedGradient,
    record_gradient,
)
from dualml_torch.backend import TorchBackend

DRAW = np.random.default_rng(0)
FORMATS = ("contiguous_format", "channels_last")
NAMES = ("lenet", "mlp", "softmax", "vit", "rnn_lm", "rnn_lm_dropout", "gpt", "gpt_llama")


def batch_of(name: str, size: int) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    spec = model(name)
    if spec.takes_tokens:
        tokens = torch.from_numpy(DRAW.integers(0, 2000, (size, 33)))
        masks = [
            torch.from_numpy(DRAW.integers(0, 2, (size, *spec.shapes()[layer])).astype(np.float32))
            for layer in ("dropout1", "dropout2")
            if layer in spec.shapes()
        ]
        return (tokens[:, :-1], *masks), tokens[:, 1:]
    x = DRAW.normal(size=(size, *spec.input_shape)).astype(np.float32)
    return (torch.from_numpy(x),), torch.from_numpy(DRAW.integers(0, 10, size))


def by_autograd(network: nn.Module, loss: str, parts: list) -> tuple[list, list]:
    network.zero_grad()
    values = []
    for (inputs, labels), share in parts:
        value = LOSSES[loss](network(*inputs), labels)
        value.backward(value.new_tensor(share))
        values.append(value.detach())
    return values, [p.grad for p in network.parameters()]


@pytest.mark.parametrize("memory", FORMATS)
@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
@pytest.mark.parametrize("name", NAMES)
def test_every_bit_is_that_of_autograd(name: str, loss: str, memory: str) -> None:
    if model(name).takes_tokens and loss == "mse":
        pytest.skip("a text has a loss of its own")
    network = Network(model(name)).to(memory_format=getattr(torch, memory))
    network.load(initial_weights(model(name), 0))
    recorded = RecordedGradient(network, LOSSES[loss])
    for shares in ((1.0,), (0.75, 0.25), (1.0,)):
        parts = [(batch_of(name, 5 - number), share) for number, share in enumerate(shares)]
        values, expected = by_autograd(network, loss, parts)
        network.zero_grad()
        assert [recorded(*part, share) for part, share in parts] == values
        for parameter, gradient in zip(network.parameters(), expected, strict=True):
            assert torch.equal(parameter.grad, gradient)
    assert set(recorded.calls) == {5, 4}


@pytest.mark.parametrize("name", ["lenet", "vit", "gpt", "rnn_lm_dropout"])
def test_gradients_are_added_where_they_lie(name: str) -> None:
    """Gradients are added in place, in one flat vector as in a sharded model, also for a tied
    table."""
    network = Network(model(name))
    network.load(initial_weights(model(name), 0))
    parts = [(batch_of(name, 5), 0.75), (batch_of(name, 3), 0.25)]
    values, expected = by_autograd(network, "cross_entropy", parts)
    own = list(network.parameters())
    vector = torch.zeros(sum(p.numel() for p in own))
    for parameter, part in zip(own, vector.split([p.numel() for p in own]), strict=True):
        parameter.grad = part.view_as(parameter)
    recorded = RecordedGradient(network, LOSSES["cross_entropy"], accumulate=True)
    for _ in range(2):
        vector.zero_()
        assert [recorded(*part, share) for part, share in parts] == values
        assert torch.equal(vector, torch.cat([g.flatten() for g in expected]))
    assert own[0].grad.data_ptr() == vector.data_ptr()


def test_a_whole_model_in_flat_vectors_is_computed_from_the_list() -> None:
    """A whole model in flat vectors runs from the recorded list, as a stage does; without the list
    autograd gives the same gradients."""
    spec, x = model("lenet"), DRAW.normal(size=(8, 1, 28, 28)).astype(np.float32)
    recipe = TrainingSpec(
        spec=spec,
        weights=initial_weights(spec, 0),
        rule=SGD(lr=0.1),
        x=x,
        y=np.arange(8),
        updates=1,
    )
    (segment,) = make_segments(spec, [slice(0, None)], lower=False)
    names = list(spec.parameters())
    vectors, made = FlatLayout([names], [spec.nbytes() // 4]), []
    for by_list in (True, False):
        stage = TorchBackend("cpu", 1).stage([segment], recipe, first=True, last=True)
        _, (gradients,) = stage.flatten(vectors, vectors)
        stage.load(recipe.weights, {}, 0)
        assert stage.recorded is not None
        stage.recorded = stage.recorded if by_list else None
        index = np.arange(8)
        early = stage.loss(0, (stage.samples(index),), stage.labels(index))
        assert (early is None) is by_list
        late, _ = stage.loss_backward(0, 0.5)
        assert (late is None) is not by_list
        made.append((gradients, late if by_list else early))
    assert made[0][0].any()
    assert torch.equal(made[0][0], made[1][0])
    assert made[0][1] == made[1][1]


def test_a_training_takes_the_same_steps_by_autograd() -> None:
    spec, x = model("lenet"), DRAW.normal(size=(64, 1, 28, 28)).astype(np.float32)
    weights, y = dict(initial_weights(spec, 0)), np.arange(64) % 10
    ended = []
    for recorded in (True, False):
        recipe = TrainingSpec(
            spec=spec, weights=weights, rule=Adam(lr=0.01), x=x, y=y, updates=4, chunk=12
        )
        training = TorchBackend("cpu", 1).training(recipe)
        if not recorded:
            training.recorded = None
        for step in range(1, 5):
            training.step(np.arange(16 * (step - 1), 16 * step), step)
        ended.append((training.weights(), training.state()["exp_avg"]))
    for ours, other in zip(*ended, strict=True):
        assert all(np.array_equal(ours[name], other[name]) for name in weights)


def test_memory_that_is_still_read_is_not_overwritten() -> None:
    """Memory that is still read is not overwritten: x + relu(x) and relu(x)·x read x after the
    operation that could overwrite it."""

    class ReusedActivation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.one(x)
            view = x.view(-1, 2, 2)
            y = torch.relu(x)
            return self.two(y * x + view.flatten(1) + torch.tanh(y))

    torch.manual_seed(0)
    network, batch = ReusedActivation(), ((torch.randn(5, 4),), torch.arange(5) % 3)
    loss = LOSSES["cross_entropy"]
    values, expected = by_autograd(network, "cross_entropy", [(batch, 1.0)])
    network.zero_grad()
    assert RecordedGradient(network, loss)(*batch, 1.0) == values[0]
    assert all(map(torch.equal, [p.grad for p in network.parameters()], expected))


def test_what_is_read_no_more_is_overwritten() -> None:
    network, (inputs, labels) = Network(model("lenet")), batch_of("lenet", 2)
    graph = record_gradient(network, LOSSES["cross_entropy"], torch.ones(()), labels, inputs)
    targets = [node.target for node in graph.graph.nodes]
    # Three layers and the logarithm of softmax, and their way back.
    assert sum(target in INPLACE_VARIANTS.values() for target in targets) == 8
    assert not any(target in INPLACE_VARIANTS for target in targets)
    assert torch.ops.aten.detach.default not in targets


def test_the_parameters_of_the_day_are_used() -> None:
    """Current parameters are used, after `load` and after a change of the memory format that is
    announced."""
    network, batch = Network(model("lenet")), batch_of("lenet", 3)
    recorded = RecordedGradient(network, LOSSES["cross_entropy"])
    recorded(*batch, 1.0)
    network.load(initial_weights(model("lenet"), 1))
    network.to(memory_format=torch.channels_last)
    recorded.clear()
    values, expected = by_autograd(network, "cross_entropy", [(batch, 1.0)])
    network.zero_grad()
    assert recorded(*batch, 1.0) == values[0]
    assert all(map(torch.equal, [p.grad for p in network.parameters()], expected))


def test_hooks_are_called_where_ranks_need_them() -> None:
    spec = model("softmax")
    recipe = TrainingSpec(
        spec=spec,
        weights=initial_weights(spec, 0),
        rule=SGD(lr=0.1),
        updates=1,
        x=np.zeros((4, 1, 28, 28), np.float32),
        y=np.zeros(4, np.int64),
        batch=4,
    )
    training = TorchBackend("cpu", 1).training(recipe)
    training.make_reducing_buckets([["fc.weight", "fc.bias"]], comm=None)
    assert training.recorded is None
    assert training.choice is None
