import copy
import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

what, folder = sys.argv[1:]
torch.manual_seed(11)
model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
recorder = Recorder(nn.ModuleDict({"model": model, "average": average}), folder, optimizer, steps=3)


@torch.no_grad()
def follow(decay=0.8):
    for mean, new in zip(average.parameters(), model.parameters()):
        mean.lerp_(new, 1 - decay)
    if what == "all":
        for mean, new in zip(average.buffers(), model.buffers()):
            mean.copy_(new)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()
    follow()


for _ in range(4):
    recorder.run(update, torch.randn(8, 3, 8, 8), torch.randint(0, 4, (8,)))
