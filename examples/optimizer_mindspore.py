"""dualml's optimizers in a training loop of your own, next to MindSpore's.

Both train the same small network on scikit-learn's handwritten digits, from the same weights and on
the same batches. Where the largest difference between the two networks' weights after 40 updates
is rounding, both follow the same rule; where it is not, MindSpore's optimizer follows another one,
which `dualml diffs NAME` explains.

    python examples/optimizer_mindspore.py
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from sklearn.datasets import load_digits

from dualml_ms.algorithms import optim

UPDATES, BATCH = 40, 64
#: Rule → dualml's optimizer, MindSpore's, each made from the parameters; the catalogue's entry.
PAIRS: dict[str, tuple[Any, Any, str]] = {
    "SGD, Nesterov": (
        lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        lambda p: nn.SGD(p, 0.1, momentum=0.9, nesterov=True),
        "sgd-explicit",
    ),
    "Adam": (
        lambda p: optim.Adam(p, 0.01, eps=1e-3),
        lambda p: nn.Adam(p, 0.01, eps=1e-3),
        "adam-epsilon",
    ),
    "Adam, epsilon hat": (
        lambda p: optim.Adam(p, 0.01, eps=1e-3, eps_form="hat"),
        lambda p: nn.Adam(p, 0.01, eps=1e-3),
        "adam-epsilon",
    ),
    "RMSprop": (
        lambda p: optim.RMSprop(p, 0.003, alpha=0.9, eps=1e-3),
        lambda p: nn.RMSProp(p, 0.003, decay=0.9, epsilon=1e-3),
        "rmsprop-form",
    ),
}


def train(make: Any) -> tuple[float, np.ndarray]:
    """Train the network; return the last loss, and all weights as one vector."""
    digits = load_digits()
    x, y = np.float32(digits.data / 16), np.int32(digits.target)
    draw = np.random.default_rng(0)
    network = nn.SequentialCell(nn.Dense(64, 32), nn.Tanh(), nn.Dense(32, 10))
    for weight in network.trainable_params():
        weight.set_data(ms.Tensor(np.float32(draw.normal(0, 0.1, weight.shape))))
    criterion, optimizer = nn.CrossEntropyLoss(), make(network.trainable_params())

    def loss_of(x, y):
        return criterion(network(x), y)

    gradient = ms.value_and_grad(loss_of, None, optimizer.parameters)
    for batch in draw.integers(0, len(x), (UPDATES, BATCH)):
        loss, gradients = gradient(ms.Tensor(x[batch]), ms.Tensor(y[batch]))
        optimizer(gradients)
    return float(loss), np.concatenate([w.asnumpy().ravel() for w in network.trainable_params()])


if __name__ == "__main__":
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.runtime.launch_blocking()  # else operators are queued, and threads of the queue spin
    print(f"{'rule':20}{'loss, dualml':>14}{'loss, mindspore':>17}{'largest difference':>20}")
    for name, (ours, theirs, entry) in PAIRS.items():
        (loss, weights), (their_loss, their_weights) = train(ours), train(theirs)
        gap = np.abs(weights - their_weights).max()
        why = f"   dualml diffs {entry}" if gap > 1e-4 else ""
        print(f"{name:20}{loss:14.6f}{their_loss:17.6f}{gap:20.1e}{why}")
