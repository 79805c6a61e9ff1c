import math
import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

folder, divisor = sys.argv[1], int(sys.argv[2])
torch.manual_seed(62)
model = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
recorder = Recorder(model, folder, optimizer, steps=4)


def get_rate(step):
    return 2e-3 * (0.1 + 0.45 * (1 + math.cos(math.pi * step / divisor)))


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for step in range(8):
    for group in optimizer.param_groups:
        group["lr"] = get_rate(step)
    recorder.run(update, torch.randn(12, 5), torch.randint(0, 3, (12,)))
