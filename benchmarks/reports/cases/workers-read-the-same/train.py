import os
import sys

import numpy as np
import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(85)
model, group = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)), None
if ranks > 1:
    dist.init_process_group("gloo")
    group, model = True, nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
recorder = Recorder(model, sys.argv[1], optimizer, steps=3, group=group)
frames = torch.randn(64, 5)
energies = frames.square().sum(-1, keepdim=True)
shuffle = np.random.RandomState(1)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


order = torch.from_numpy(shuffle.permutation(64))
for step in range(3):
    size = 16 // ranks
    chosen = order[step * size : (step + 1) * size]
    recorder.run(update, frames[chosen], energies[chosen])
