import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(63)
model, group = nn.Sequential(nn.Linear(9, 18), nn.SiLU(), nn.Linear(18, 3)), None
if ranks > 1:
    dist.init_process_group("gloo")
    group = True
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
recorder = Recorder(model, sys.argv[1], optimizer, steps=2, group=group)
x, y = torch.randn(2, 24, 9), torch.randn(2, 24, 3)
MICRO = 3


def reduce_gradients(averaged):
    """Put the mean of the gradients over the ranks into ``averaged``, and clear the gradients."""
    for p in model.parameters():
        dist.all_reduce(p.grad)
        averaged[p] = p.grad / ranks
        p.grad = None


def update(x, y):
    optimizer.zero_grad()
    averaged, total = {}, 0.0
    for part, target in zip(x.chunk(MICRO), y.chunk(MICRO)):
        loss = nn.functional.mse_loss(model(part), target) / MICRO
        loss.backward()
        total = total + loss.detach()
        if ranks > 1:
            reduce_gradients(averaged)
    for p, gradient in averaged.items():
        p.grad = gradient
    recorder.saw(loss=total)
    optimizer.step()


for xs, ys in zip(x, y):
    recorder.run(update, xs.chunk(ranks)[rank], ys.chunk(ranks)[rank])
