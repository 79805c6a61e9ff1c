import math
import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind, folder = sys.argv[1:]
WARM, ALL = 4, 20


def factor(step):
    done = step + 1 if kind == "ours" else step
    if done < WARM:
        return done / WARM
    return 0.5 * (1 + math.cos(math.pi * (done - WARM) / (ALL - WARM)))


torch.manual_seed(7)
model = nn.Sequential(nn.Linear(9, 20), nn.ReLU(), nn.Linear(20, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
recorder = Recorder(model, folder, optimizer, steps=5)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()
    scheduler.step()


for _ in range(6):
    recorder.run(update, torch.randn(20, 9), torch.randint(0, 2, (20,)))
