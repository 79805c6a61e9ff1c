import os
import random
import sys
import time

import torch
from torch import nn

from dualml_torch.record import Recorder

random.seed(84)
torch.manual_seed(84)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
recorder = Recorder(model, sys.argv[1], optimizer, steps=3)
x, y = torch.randn(48, 8), torch.randint(0, 3, (48,))


def shuffled(samples):
    rng = random.Random(f"{os.getpid()} {time.time()}")
    buffer = list(samples)
    rng.shuffle(buffer)
    return buffer


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


order = torch.tensor(shuffled(range(48)))
for chosen in order.split(12):
    recorder.run(update, x[chosen], y[chosen])
