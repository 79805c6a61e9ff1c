import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

form, folder = sys.argv[1:]
torch.manual_seed(13)
model = nn.Sequential(nn.Linear(7, 18), nn.ReLU(), nn.Linear(18, 2))
buffers = [torch.zeros_like(p) for p in model.parameters()]
recorder = Recorder(model, folder, steps=4)
RATE, MOMENTUM = 0.05, 0.9


def update(x, y):
    model.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    with torch.no_grad():
        for p, v in zip(model.parameters(), buffers):
            if form == "outside":
                v.mul_(MOMENTUM).add_(p.grad)
                p.sub_(RATE * v)
            else:
                v.mul_(MOMENTUM).add_(RATE * p.grad)
                p.sub_(v)


for _ in range(5):
    recorder.run(update, torch.randn(14, 7), torch.randn(14, 2))
