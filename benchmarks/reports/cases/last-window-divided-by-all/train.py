import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

divisor, folder = sys.argv[1:]
torch.manual_seed(61)
model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
recorder = Recorder(model, folder, optimizer, steps=3)
ACCUMULATE = 4


def update(xs, ys):
    optimizer.zero_grad()
    total = 0.0
    for x, y in zip(xs, ys):
        loss = nn.functional.cross_entropy(model(x), y) / (len(xs) if divisor == "own" else ACCUMULATE)
        loss.backward()
        total = total + loss.detach()
    recorder.saw(loss=total)
    optimizer.step()


epoch_x, epoch_y = torch.randn(10, 6, 12), torch.randint(0, 5, (10, 6))
for xs, ys in zip(epoch_x.split(ACCUMULATE), epoch_y.split(ACCUMULATE)):
    recorder.run(update, xs, ys)
