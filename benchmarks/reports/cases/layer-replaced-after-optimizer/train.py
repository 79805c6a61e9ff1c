import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

when, folder = sys.argv[1:]
torch.manual_seed(24)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def replace():
    old, new = model[2], nn.Linear(32, 32)
    with torch.no_grad():
        new.weight.copy_(old.weight * (old.weight.abs() > 0.05))
        new.bias.copy_(old.bias)
    model[2] = new


if when == "first":
    replace()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
if when == "last":
    replace()
recorder = Recorder(model, folder, optimizer, steps=2)
batches = torch.Generator().manual_seed(0)


def update(x, y):
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(3):
    x = torch.randn(16, 10, generator=batches)
    recorder.run(update, x, torch.randint(0, 4, (16,), generator=batches))
