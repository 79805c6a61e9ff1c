import os
import sys

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(44)
model, group = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)), None
if ranks > 1:
    dist.init_process_group("gloo")
    group = True
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = Recorder(model, sys.argv[1], optimizer, steps=2, group=group)
x, y = 3 * torch.randn(2, 16, 8), torch.randint(0, 4, (2, 16))


def clip(most):
    parts = [getattr(p.grad, "_local_tensor", p.grad) for p in model.parameters()]
    norm = torch.stack([part.norm() for part in parts]).norm()
    for part in parts:
        part.mul_((most / (norm + 1e-6)).clamp(max=1.0))


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    clip(0.1)
    recorder.saw(loss=loss)
    optimizer.step()


for xs, ys in zip(x, y):
    recorder.run(update, xs.chunk(ranks)[rank], ys.chunk(ranks)[rank])
