import copy
import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

unit, folder = sys.argv[1:]
torch.manual_seed(35)
model = nn.Sequential(nn.Linear(9, 18), nn.Mish(), nn.Linear(18, 9))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
recorder = Recorder(nn.ModuleDict({"model": model, "average": average}), folder, optimizer, steps=3)
PARTS = 4


@torch.no_grad()
def follow():
    for mean, new in zip(average.parameters(), model.parameters()):
        mean.lerp_(new, 0.05)


def update(x):
    optimizer.zero_grad()
    total = 0.0
    for i, part in enumerate(x.chunk(PARTS)):
        loss = nn.functional.l1_loss(model(part), part.flip(-1)) / PARTS
        loss.backward()
        total = total + loss.detach()
        if i == PARTS - 1:
            recorder.saw(loss=total)
            optimizer.step()
        if unit == "micro":
            follow()
    if unit == "step":
        follow()


for _ in range(4):
    recorder.run(update, torch.randn(16, 9))
