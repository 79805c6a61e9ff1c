import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind, folder = sys.argv[1:]
torch.manual_seed(20)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
recorder = Recorder(model, folder, optimizer, steps=4)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    recorder.saw(loss=loss)
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if kind == "goes" or scaler.get_scale() >= before:
        scheduler.step()


for step in range(5):
    x = torch.randn(16, 8)
    recorder.run(update, x * 1e18 if step == 1 else x, torch.randn(16, 2))
