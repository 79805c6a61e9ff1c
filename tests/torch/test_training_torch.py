"""A case that only a PyTorch `Training` meets: a parameter that the loss does not reach."""

from __future__ import annotations

import numpy as np
from torch import nn
from torch.nn import functional

from dualml.algorithms.model import initial_weights, model
from dualml.algorithms.optim import SGD
from dualml.backend import TrainingSpec
from dualml_torch.backend import TorchBackend


class NoBias(nn.Linear):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return functional.linear(x, self.weight)


def test_a_parameter_that_the_loss_does_not_reach_has_a_gradient_of_zeros() -> None:
    """A parameter that the loss does not reach has a zero gradient, as in MindSpore; `.grad` is
    None, and the optimizer leaves the parameter unchanged."""
    spec = model("softmax")
    x = np.random.default_rng(0).normal(size=(16, 1, 28, 28)).astype(np.float32)
    y = np.arange(16) % 10
    weights = dict(initial_weights(spec, 0))
    training = TorchBackend().training(
        TrainingSpec(spec=spec, weights=weights, rule=SGD(lr=0.05), x=x, y=y, updates=1)
    )
    (layer,) = (m for m in training.network.modules() if isinstance(m, nn.Linear))
    layer.__class__ = NoBias
    found = training.trace(np.arange(8), np.arange(4)).gradients
    assert {name: bool(np.any(g)) for name, g in found.items()} == {
        name: name.endswith("weight") for name in weights
    }
    assert found["fc.bias"].shape == (10,)
    training.step(np.arange(8), 1)
    assert np.array_equal(training.weights()["fc.bias"], weights["fc.bias"])
