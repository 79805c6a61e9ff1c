import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind, folder = sys.argv[1:]
NAMES = ["bias", "layer_norm.weight"] if kind == "lower" else ["bias", "LayerNorm.weight"]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer_norm, self.fc = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.fc(self.layer_norm(x)))


torch.manual_seed(68)
model = nn.Sequential(nn.Linear(7, 16), Block(16), Block(16), nn.Linear(16, 3))
named = list(model.named_parameters())
groups = [
    {"params": [p for n, p in named if not any(k in n for k in NAMES)], "weight_decay": 0.1},
    {"params": [p for n, p in named if any(k in n for k in NAMES)], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=1e-2)
recorder = Recorder(model, folder, optimizer, steps=3)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(3):
    recorder.run(update, torch.randn(10, 7), torch.randint(0, 3, (10,)))
