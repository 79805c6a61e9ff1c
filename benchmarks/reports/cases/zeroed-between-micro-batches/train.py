import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

where, folder = sys.argv[1:]
torch.manual_seed(1)
model = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.SiLU(), nn.Flatten(), nn.Linear(80, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
recorder = Recorder(model, folder, optimizer, steps=3)
PARTS = 4


def update(x, y):
    optimizer.zero_grad()
    total = 0.0
    for part, target in zip(x.chunk(PARTS), y.chunk(PARTS)):
        if where == "inside":
            optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(part), target) / PARTS
        loss.backward()
        total = total + loss.detach()
    recorder.saw(loss=total)
    optimizer.step()


for _ in range(4):
    recorder.run(update, torch.randn(16, 4, 10), torch.randn(16, 3))
