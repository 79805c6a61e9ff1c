import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

form, folder = sys.argv[1:]
torch.manual_seed(14)
model = nn.Sequential(nn.Linear(7, 18), nn.ReLU(), nn.Linear(18, 2))
buffers = [torch.zeros_like(p) for p in model.parameters()]
recorder = Recorder(model, folder, steps=5)


def update(x, y, rate):
    model.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    with torch.no_grad():
        for p, v in zip(model.parameters(), buffers):
            if form == "outside":
                v.mul_(0.9).add_(p.grad)
                p.sub_(rate * v)
            else:
                v.mul_(0.9).add_(rate * p.grad)
                p.sub_(v)


for step in range(6):
    rate = torch.tensor(0.05 if step < 2 else 0.01)
    recorder.run(update, torch.randn(14, 7), torch.randn(14, 2), rate)
