import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(41)
model, group = Net(), None
if ranks > 1:
    dist.init_process_group("gloo")
    group, model = True, nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = Recorder(model, sys.argv[1], optimizer, steps=2, group=group)
x, y = torch.randn(2, 8, 2, 6, 6), torch.randint(0, 4, (2, 8))


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for xs, ys in zip(x, y):
    recorder.run(update, xs.chunk(ranks)[rank], ys.chunk(ranks)[rank])
