import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

scaled, folder = sys.argv[1:]
torch.manual_seed(62)
model = nn.Sequential(nn.Linear(10, 20), nn.GELU(), nn.Linear(20, 20), nn.GELU(), nn.Linear(20, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = Recorder(model, folder, optimizer, steps=2)
WINDOWS, MICRO = 2, 4


def run_schedule(x, y):
    """One pass through the pipeline: all micro-batches forward and backward."""
    total = 0.0
    for part, labels in zip(x.chunk(MICRO), y.chunk(MICRO)):
        loss = nn.functional.cross_entropy(model(part), labels) / WINDOWS
        if scaled == "loss":
            loss = loss / MICRO
        loss.backward()
        total = total + loss.detach()
    if scaled == "loss":
        return total
    for p in model.parameters():
        p.grad.div_(MICRO)
    return total / MICRO


def update(x, y):
    optimizer.zero_grad()
    total = sum(run_schedule(a, b) for a, b in zip(x.chunk(WINDOWS), y.chunk(WINDOWS)))
    recorder.saw(loss=total)
    optimizer.step()


for _ in range(2):
    recorder.run(update, torch.randn(32, 10), torch.randint(0, 6, (32,)))
