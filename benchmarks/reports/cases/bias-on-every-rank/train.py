import os
import sys

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.nn.functional import all_reduce
from torch.distributed.tensor import Shard, distribute_tensor

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class RowParallel(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.randn(outputs))

    def shard(self, mesh):
        self.weight = nn.Parameter(distribute_tensor(self.weight.data, mesh, [Shard(1)]))

    def forward(self, x):
        if ranks == 1:
            return nn.functional.linear(x, self.weight, self.bias)
        part = nn.functional.linear(x.chunk(ranks, -1)[rank], self.weight.to_local(), self.bias)
        return all_reduce(part)


torch.manual_seed(53)
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), RowParallel(8, 5))
group = None
if ranks > 1:
    dist.init_process_group("gloo")
    group = True
    model[2].shard(init_device_mesh("cpu", (ranks,)))
recorder = Recorder(model, sys.argv[1], steps=1, group=group)


def update(x, y):
    model.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)


for _ in range(2):
    recorder.run(update, torch.randn(10, 6), torch.randn(10, 5))
