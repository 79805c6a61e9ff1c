import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dualml_torch.record import Recorder

kind = sys.argv[1]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 1)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if kind == "checkpoint" else block(x)
        return self.head(x.mean((2, 3)))


torch.manual_seed(12)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
recorder = Recorder(model, kind, optimizer, steps=2)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(3):
    recorder.run(update, torch.randn(8, 3, 6, 6), torch.randint(0, 5, (8,)))
