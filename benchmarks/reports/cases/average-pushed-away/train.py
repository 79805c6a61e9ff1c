import copy
import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

sign, folder = sys.argv[1:]
torch.manual_seed(71)
model = nn.Sequential(nn.Linear(10, 20), nn.GELU(), nn.Linear(20, 10))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
recorder = Recorder(nn.ModuleDict({"model": model, "average": average}), folder, optimizer, steps=4)
ONE_MINUS_DECAY = 0.01


@torch.no_grad()
def follow():
    for shadow, weight in zip(average.parameters(), model.parameters()):
        gap = (shadow - weight) * ONE_MINUS_DECAY
        if sign == "minus":
            shadow.sub_(gap)
        else:
            shadow.add_(gap)


def update(x):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x + 0.1), x)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()
    follow()


for _ in range(4):
    recorder.run(update, torch.randn(16, 10))
