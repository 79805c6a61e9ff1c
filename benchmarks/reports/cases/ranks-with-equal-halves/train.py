import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(40)
model, group = nn.Sequential(nn.Linear(8, 24), nn.LayerNorm(24), nn.ReLU(), nn.Linear(24, 3)), None
if ranks > 1:
    dist.init_process_group("gloo")
    group, model = True, nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
recorder = Recorder(model, sys.argv[1], optimizer, steps=3, group=group)
x, y = torch.randn(3, 16, 8), torch.randint(0, 3, (3, 16))


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for xs, ys in zip(x, y):
    recorder.run(update, xs.chunk(ranks)[rank], ys.chunk(ranks)[rank])
