import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(51 + rank)
model, group = nn.Sequential(nn.Linear(6, 20), nn.SELU(), nn.Linear(20, 2)), None
if ranks > 1:
    dist.init_process_group("gloo")
    group, model = True, nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
recorder = Recorder(model, sys.argv[1], optimizer, steps=3, group=group)
data = torch.Generator().manual_seed(0)
x, y = torch.randn(3, 10, 6, generator=data), torch.randn(3, 10, 2, generator=data)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for xs, ys in zip(x, y):
    recorder.run(update, xs.chunk(ranks)[rank], ys.chunk(ranks)[rank])
