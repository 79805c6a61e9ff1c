import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(45)
model, group = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 12)), None
if ranks > 1:
    dist.init_process_group("gloo")
    group, model = True, nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
recorder = Recorder(model, sys.argv[1], optimizer, steps=2, group=group)
pairs = torch.randn(2, 8, 2, 10)


def update(pairs):
    optimizer.zero_grad()
    anchors, positives = nn.functional.normalize(model(pairs), dim=-1).unbind(1)
    scores = 20 * anchors @ positives.T
    loss = nn.functional.cross_entropy(scores, torch.arange(len(scores)))
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for batch in pairs:
    recorder.run(update, batch.chunk(ranks)[rank])
