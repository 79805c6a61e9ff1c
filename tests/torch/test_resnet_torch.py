"""ResNet-18 against torchvision's: equal outputs and gradients for equal weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.model.resnet import resnet18
from dualml.algorithms.optim import SGD
from dualml.backend import TrainingSpec, backends
from dualml.common.distance import distance
from dualml.common.errors import Unsupported
from dualml_torch.algorithms.model import Network
from dualml_torch.experiment.data import import_torchvision

CLASSES, SIDE, BATCH = 5, 64, 4
SPEC = resnet18((3, SIDE, SIDE), CLASSES)
RATE, UPDATES = 0.05, 2


@pytest.fixture(scope="module")
def torchvision_net() -> torch.nn.Module:
    try:
        vision = import_torchvision()
    except Unsupported as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    return vision.models.resnet18(num_classes=CLASSES)


@pytest.fixture(scope="module")
def weights(torchvision_net: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return torchvision's weights by our names, with running statistics that are not the initial
    ones."""
    with torch.no_grad():
        for name, buffer in torchvision_net.named_buffers():
            if name.endswith("running_mean"):
                buffer.uniform_(-0.2, 0.2)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2)
    return {
        n: t.numpy().copy()
        for n, t in torchvision_net.state_dict().items()
        if not n.endswith("num_batches_tracked")
    }


@pytest.fixture(scope="module")
def samples() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(BATCH, 3, SIDE, SIDE)).astype(np.float32)
    return x, draw.integers(0, CLASSES, BATCH)


@pytest.fixture(scope="module")
def expected(torchvision_net: torch.nn.Module, weights: Any, samples: Any) -> dict[str, Any]:
    """Return what torchvision's network computes in float64, then after two updates by SGD."""
    network = torchvision_net.double()
    network.load_state_dict({n: torch.from_numpy(w).double() for n, w in weights.items()})
    x, y = torch.from_numpy(samples[0]).double(), torch.from_numpy(samples[1])
    network.eval()
    with torch.no_grad():
        found: dict[str, Any] = {"evaluated": network(x).numpy()}
    network.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=0.9)
    for step in range(UPDATES):
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(x), y)
        loss.backward()
        if step == 0:
            found["loss"] = loss.item()
            found["gradients"] = {n: p.grad.numpy().copy() for n, p in network.named_parameters()}
        optimizer.step()
    found["after"] = {n: t.numpy().copy() for n, t in network.state_dict().items()}
    return found


def test_names_and_shapes_are_torchvisions(torchvision_net: torch.nn.Module, weights: Any) -> None:
    ours = SPEC.tensors()
    assert list(ours) == list(weights)
    assert ours == {name: tuple(w.shape) for name, w in weights.items()}
    assert list(SPEC.parameters()) == [name for name, _ in torchvision_net.named_parameters()]
    thousand = resnet18((3, 224, 224), 1000).parameters().values()
    assert sum(int(np.prod(shape)) for shape in thousand) == 11_689_512


def test_outputs_gradients_and_updates_of_the_referee(
    weights: Any, samples: Any, expected: dict[str, Any]
) -> None:
    """Outputs, gradients and updates equal the reference's in float64. In float32 one of half a
    million units usually crosses the kink of ReLU, which alone moves a bias gradient by a
    hundredth: there bits are compared instead."""
    x, y = samples
    near, far = 1e-12, 1e-11
    rule = SGD(lr=RATE, momentum=0.9)
    recipe = TrainingSpec(spec=SPEC, weights=weights, rule=rule, x=x, y=y, updates=UPDATES)
    training = backends()["numpy"].create("cpu").training(recipe)
    everything = np.arange(BATCH)
    trace = training.trace(everything, everything)
    assert trace.loss == pytest.approx(expected["loss"], rel=near)
    assert distance(trace.activations["fc"], expected["evaluated"]) <= near
    gradients = expected["gradients"]
    assert {
        n: distance(trace.gradients[n], gradients[n])
        for n in gradients
        if distance(trace.gradients[n], gradients[n]) > far
    } == {}
    for step in range(1, UPDATES + 1):
        training.step(everything, step)
    after = training.weights()
    assert list(after) == list(SPEC.tensors())
    assert {
        n: distance(after[n], expected["after"][n])
        for n in after
        if distance(after[n], expected["after"][n]) > far
    } == {}


def test_float32_has_the_bits_of_torchvision(weights: Any, samples: Any) -> None:
    """Float32 results have torchvision's bits: the same kernels in the same order, forward and
    backward."""
    theirs = import_torchvision().models.resnet18(num_classes=CLASSES).train()
    theirs.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()}, strict=False)
    ours = Network(SPEC).train()
    ours.load(weights)
    x, y = map(torch.from_numpy, samples)
    for network in (theirs, ours):
        functional.cross_entropy(network(x), y).backward()
    own = ours.canonical()
    for name, parameter in theirs.named_parameters():
        assert torch.equal(parameter.grad, own[name].grad), name
    for name, buffer in theirs.named_buffers():
        assert name.endswith("num_batches_tracked") or torch.equal(buffer, ours.statistics()[name])


def test_a_checkpoint_of_torchvision_has_our_names(weights: Any) -> None:
    """A checkpoint of torchvision has our names, plus batch counters, which have no effect with a
    momentum."""
    missing, unexpected = Network(SPEC).load_state_dict(
        {n: torch.from_numpy(w) for n, w in weights.items()}, strict=False
    )
    assert [name for name in missing if not name.endswith("num_batches_tracked")] == []
    assert unexpected == []


def test_the_stem_of_small_images_keeps_their_size() -> None:
    small = model("resnet18_cifar", shape=(3, 32, 32), classes=10)
    assert small.shapes()["relu"] == (64, 32, 32)
    assert small.shapes()["layer4.1.relu"] == (512, 4, 4)
    assert model("resnet18").shapes()["maxpool"] == (64, 8, 8)
    assert set(small.parameters()) == set(model("resnet18").parameters())
    assert len(initial_weights(model("resnet18", sizes={"width": 2}), 0)) == 102
