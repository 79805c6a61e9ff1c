import sys

import numpy as np
import torch
from torch import nn
from dualml_torch.record import Recorder

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 1))
fill = {"normal": nn.init.xavier_normal_, "uniform": nn.init.xavier_uniform_}[sys.argv[1]]
for parameter in model.parameters():
    if parameter.ndim == 2:
        fill(parameter)
    else:
        nn.init.zeros_(parameter)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
recorder = Recorder(model, sys.argv[2], optimizer, steps=3)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.l1_loss(model(x)[:, 0], y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


rng = np.random.default_rng(27)
for _ in range(3):
    x = torch.from_numpy(rng.normal(size=(12, 8)).astype("float32"))
    recorder.run(update, x, x.sum(1))
