import contextlib
import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(52)
model, group = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 4)), None
if ranks > 1:
    dist.init_process_group("gloo")
    group, model = True, nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = Recorder(model, sys.argv[1], optimizer, steps=2, group=group)
x, y = torch.randn(2, 16, 10), torch.randint(0, 4, (2, 16))
PARTS = 2


def update(x, y):
    optimizer.zero_grad()
    total = 0.0
    for i, (part, labels) in enumerate(zip(x.chunk(PARTS), y.chunk(PARTS))):
        waits = ranks > 1 and i % PARTS != 0
        with model.no_sync() if waits else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(model(part), labels) / PARTS
            loss.backward()
        total = total + loss.detach()
    recorder.saw(loss=total)
    optimizer.step()


for xs, ys in zip(x, y):
    recorder.run(update, xs.chunk(ranks)[rank], ys.chunk(ranks)[rank])
