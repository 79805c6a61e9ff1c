import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(42)
model, group = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5)), None
if ranks > 1:
    dist.init_process_group("gloo")
    group, model = True, nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
recorder = Recorder(model, sys.argv[1], optimizer, steps=2, group=group)
x, y = torch.randn(2, 12, 12), torch.randint(0, 5, (2, 12))


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    (loss * ranks).backward()
    recorder.saw(loss=loss)
    optimizer.step()


for xs, ys in zip(x, y):
    recorder.run(update, xs.chunk(ranks)[rank], ys.chunk(ranks)[rank])
