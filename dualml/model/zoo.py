"""The models of the course."""

from __future__ import annotations

from collections.abc import Callable

from dualml.errors import UserError, nearest
from dualml.model.spec import Conv2d, Flatten, Linear, MaxPool2d, ModelSpec, ReLU, Tanh


def lenet() -> ModelSpec:
    """The course's LeNet for 28×28 grey images and ten classes: 51,902 parameters.

    Source: LeCun et al. 1998, "Gradient-based learning applied to document recognition", sec. II.B,
    with ReLU, max pooling and one hidden linear layer instead of two.
    """
    return ModelSpec(
        "lenet",
        (1, 28, 28),
        (
            ("conv1", Conv2d(1, 6, 5, padding=2)),
            ("relu1", ReLU()),
            ("pool1", MaxPool2d(2)),
            ("conv2", Conv2d(6, 16, 5)),
            ("relu2", ReLU()),
            ("pool2", MaxPool2d(2)),
            ("flatten", Flatten()),
            ("fc1", Linear(400, 120)),
            ("relu3", ReLU()),
            ("fc2", Linear(120, 10)),
        ),
    )


def mlp() -> ModelSpec:
    """Two hidden layers with tanh: 784 → 256 → 128 → 10."""
    return ModelSpec(
        "mlp",
        (1, 28, 28),
        (
            ("flatten", Flatten()),
            ("fc1", Linear(784, 256)),
            ("tanh1", Tanh()),
            ("fc2", Linear(256, 128)),
            ("tanh2", Tanh()),
            ("fc3", Linear(128, 10)),
        ),
    )


def softmax() -> ModelSpec:
    """Softmax regression: one linear layer, a convex problem."""
    return ModelSpec("softmax", (1, 28, 28), (("flatten", Flatten()), ("fc", Linear(784, 10))))


ZOO: dict[str, Callable[[], ModelSpec]] = {"lenet": lenet, "mlp": mlp, "softmax": softmax}


def model(name: str) -> ModelSpec:
    """A model of the zoo by name.

    Raises:
        UserError: unknown name.
    """
    if name not in ZOO:
        raise UserError(f"unknown model {name!r}{nearest(name, ZOO)}")
    return ZOO[name]()
