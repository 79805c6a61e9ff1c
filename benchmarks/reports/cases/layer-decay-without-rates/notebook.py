# %% cell 1: the model
import numpy as np
import torch
from torch import nn

from dualml.parity import compare


class Tiny(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.patch = nn.Linear(12, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.patch(x)
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.head(x)


class Same(Tiny):
    pass


# %% cell 2: the groups
def make_groups(parameters, decay=0.5):
    parameters = list(parameters)
    layers = [parameters[i : i + 2] for i in range(0, len(parameters), 2)]
    return [
        {"params": layer, "lr_scale": decay ** (len(layers) - 1 - i)}
        for i, layer in enumerate(layers)
    ]


def fixed(parameters, lr=1e-2):
    groups = make_groups(parameters)
    for group in groups:
        group["lr"] = lr * group.pop("lr_scale")
    return torch.optim.SGD(groups, lr=lr)


def released(parameters, lr=1e-2):
    return torch.optim.SGD(make_groups(parameters), lr=lr)


# %% cell 3: the question
if __name__ == "__main__":
    r = np.random.default_rng(33)
    x, y = r.normal(size=(8, 12)).astype("float32"), r.integers(0, 5, 8)
    options = {"loss": "cross_entropy", "optimizer": (fixed, released), "steps": 2}
    print(compare(Tiny, Same, x, targets=y, **options).page())
