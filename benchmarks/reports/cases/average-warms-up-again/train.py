import copy
import math
import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind = sys.argv[1]


class Average(nn.Module):
    def __init__(self, model, decay=0.99, warmup=20):
        super().__init__()
        self.module = copy.deepcopy(model).requires_grad_(False)
        self.decay, self.warmup, self.updates = decay, warmup, 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = self.decay * (1 - math.exp(-self.updates / self.warmup))
        for mean, new in zip(self.module.parameters(), model.parameters()):
            mean.mul_(decay).add_(new, alpha=1 - decay)


torch.manual_seed(70)
model = nn.Sequential(nn.Linear(6, 18), nn.ReLU(), nn.Linear(18, 4))
average, recorder = Average(model), None
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
batches = [(torch.randn(12, 6), torch.randint(0, 4, (12,))) for _ in range(63)]


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    if recorder:
        recorder.saw(loss=loss)
    optimizer.step()
    average.update(model)


for x, y in batches[:60]:
    update(x, y)
if kind == "resumed":
    saved = average.state_dict()
    average = Average(model)
    average.load_state_dict(saved)
both = nn.ModuleDict({"model": model, "average": average.module})
recorder = Recorder(both, kind, optimizer, steps=3)
for x, y in batches[60:]:
    recorder.run(update, x, y)
