"""dualml's optimizers in a training loop of your own, next to PyTorch's.

Both train the same small network on scikit-learn's handwritten digits, from the same weights and on
the same batches. The last column is the largest difference between the two networks' weights after
200 updates: rounding, as both follow the same rule.

    python examples/optimizer_torch.py
"""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn

from dualml_torch.algorithms import optim

UPDATES, BATCH = 200, 64
#: Rule → dualml's optimizer, PyTorch's, and the settings that both take.
PAIRS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "SGD, Nesterov": (
        optim.SGD,
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
    ),
    "Adam": (optim.Adam, torch.optim.Adam, {"lr": 0.01, "eps": 1e-3}),
    "AdamW": (optim.AdamW, torch.optim.AdamW, {"lr": 0.01, "eps": 1e-3, "weight_decay": 0.1}),
    "RMSprop, centered": (
        optim.RMSprop,
        torch.optim.RMSprop,
        {"lr": 0.003, "eps": 1e-3, "centered": True},
    ),
    "Adagrad": (optim.Adagrad, torch.optim.Adagrad, {"lr": 0.1, "eps": 1e-3}),
}


def train(kind: Any, settings: dict[str, Any]) -> tuple[float, torch.Tensor]:
    """Train the network; return the last loss, and all weights as one vector."""
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32)
    y = torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = kind(model.parameters(), **settings)
    for batch in torch.randint(0, len(x), (UPDATES, BATCH)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
    return loss.item(), nn.utils.parameters_to_vector(model.parameters()).detach()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{'rule':20}{'loss, dualml':>14}{'loss, torch':>14}{'largest difference':>22}")
    for name, (ours, theirs, settings) in PAIRS.items():
        (loss, weights), (their_loss, their_weights) = (
            train(kind, settings) for kind in (ours, theirs)
        )
        gap = (weights - their_weights).abs().max().item()
        print(f"{name:20}{loss:14.6f}{their_loss:14.6f}{gap:22.1e}")
