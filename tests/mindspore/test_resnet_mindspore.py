"""ResNet-18 against the reference, which `tests/torch` compares with torchvision's."""

from __future__ import annotations

import numpy as np
import pytest

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import SGD
from dualml.backend import TrainingSpec, backends
from dualml.common.distance import distance

BATCH, UPDATES = 4, 2
#: Tolerances of outputs, and of gradients and updates, for float32 against float64: biases start at
#: 0, and a unit may cross the kink of ReLU (measured: 8.5e-5).
NEAR, FAR = 3e-6, 1e-3


def test_outputs_gradients_and_updates() -> None:
    """The narrow ResNet equals the reference; MindSpore compiles for half a minute at any width."""
    spec = model("resnet18", classes=5, sizes={"width": 4})
    draw = np.random.default_rng(0)
    x = draw.normal(size=(BATCH, 3, 32, 32)).astype(np.float32)
    y, everything = draw.integers(0, 5, BATCH), np.arange(BATCH)
    start = initial_weights(spec, 0)
    for name in spec.buffers:
        start[name] = start[name] + draw.uniform(0, 0.5, start[name].shape).astype(np.float32)
    rule = SGD(lr=0.05, momentum=0.9)
    recipe = TrainingSpec(spec=spec, weights=start, rule=rule, x=x, y=y, updates=UPDATES)
    ours, referee = (backends()[n].create("cpu").training(recipe) for n in ("mindspore", "numpy"))
    a, b = (training.trace(everything, everything) for training in (ours, referee))
    assert a.loss == pytest.approx(b.loss, rel=NEAR)
    assert max(distance(a.activations[n], b.activations[n]) for n in b.activations) <= NEAR
    assert max(distance(a.gradients[n], b.gradients[n]) for n in b.gradients) <= FAR
    assert all(np.array_equal(w, start[n]) for n, w in ours.weights().items())  # only looked at
    for step in range(1, UPDATES + 1):
        for training in (ours, referee):
            training.step(everything, step)
    a, b = ours.weights(), referee.weights()
    assert list(a) == list(b) == list(spec.tensors())
    assert max(distance(a[n], b[n]) for n in b) <= FAR
