import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        return self.fc(x)

    def predict(self, x):
        return self.fc(x).tanh()


rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(43)
backbone, head, group = nn.Sequential(nn.Linear(10, 16), nn.GELU()), Head(), None
both = nn.ModuleDict({"backbone": backbone, "head": head})
if ranks > 1:
    dist.init_process_group("gloo")
    group, backbone = True, nn.parallel.DistributedDataParallel(backbone)
    head = nn.parallel.DistributedDataParallel(head)
optimizer = torch.optim.AdamW(both.parameters(), lr=1e-2)
recorder = Recorder(both, sys.argv[1], optimizer, steps=2, group=group)
x, y = torch.randn(2, 12, 10), torch.randn(2, 12, 3).tanh()


def update(x, y):
    optimizer.zero_grad()
    features = backbone(x)
    actions = head.module.predict(features) if ranks > 1 else head.predict(features)
    loss = nn.functional.mse_loss(actions, y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for xs, ys in zip(x, y):
    recorder.run(update, xs.chunk(ranks)[rank], ys.chunk(ranks)[rank])
