import contextlib
import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.branches = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x, branch):
        x = torch.tanh(self.stem(x))
        return self.head(x + torch.relu(self.branches[branch](x)))


rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(64)
model, group = Net(), None
if ranks > 1:
    dist.init_process_group("gloo")
    group, model = True, nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = Recorder(model, sys.argv[1], optimizer, steps=2, group=group)
x, y = torch.randn(2, 2, 8, 8), torch.randint(0, 4, (2, 2, 8))


def update(*micro):
    optimizer.zero_grad()
    total = 0.0
    for branch, (part, labels) in enumerate(zip(micro[::2], micro[1::2])):
        waits = ranks > 1 and branch == 0
        with model.no_sync() if waits else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(model(part, branch), labels) / 2
            loss.backward()
        total = total + loss.detach()
    recorder.saw(loss=total)
    optimizer.step()


for xs, ys in zip(x, y):
    micro = [t.chunk(ranks)[rank] for pair in zip(xs, ys) for t in pair]
    recorder.run(update, *micro)
