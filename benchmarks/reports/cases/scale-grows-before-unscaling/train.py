import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

order, folder = sys.argv[1:]
torch.manual_seed(21)
model = nn.Sequential(nn.Linear(6, 14), nn.Tanh(), nn.Linear(14, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Scaler:
    """Doubles its scale after every second step without an overflow."""

    def __init__(self):
        self.scale, self.good = 64.0, 0

    def grow(self):
        self.good += 1
        if self.good % 2 == 0:
            self.scale *= 2


scaler = Scaler()
recorder = Recorder(model, folder, optimizer, steps=4)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    (loss * scaler.scale).backward()
    if order == "before":
        scaler.grow()
    for p in model.parameters():
        p.grad.div_(scaler.scale)
    if order == "after":
        scaler.grow()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(5):
    recorder.run(update, torch.randn(20, 6), torch.randint(0, 3, (20,)))
