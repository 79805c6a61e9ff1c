import sys
from bisect import bisect_right

import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, LinearLR

from dualml_torch.record import Recorder



class Chain:
    """Schedules one after the other, as in the release of the report."""

    def __init__(self, schedules, milestones):
        self.schedules, self.milestones, self.done = schedules, milestones, 0

    def step(self):
        self.done += 1
        self.schedules[bisect_right(self.milestones, self.done)].step()


kind, folder = sys.argv[1:]
torch.manual_seed(8)
model = nn.Sequential(nn.Linear(6, 16), nn.ELU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
if kind == "plain":
    scheduler = ExponentialLR(optimizer, 0.7)
else:
    warm = LinearLR(optimizer, start_factor=0.01, total_iters=5)
    scheduler = Chain([warm, ExponentialLR(optimizer, 0.7)], [0])
recorder = Recorder(model, folder, optimizer, steps=4)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(5):
    recorder.run(update, torch.randn(12, 6), torch.randn(12, 1))
    scheduler.step()
