import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

count, folder = sys.argv[1:]
WARMUP = 10


def scale(epoch):
    step = epoch + 1 if count == "next" else max(1, epoch)
    return WARMUP**0.5 * min(step**-0.5, step * WARMUP**-1.5)


torch.manual_seed(66)
model = nn.Sequential(nn.Linear(11, 22), nn.ELU(), nn.Linear(22, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, scale)
recorder = Recorder(model, folder, optimizer, steps=4)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.smooth_l1_loss(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()
    scheduler.step()


for _ in range(5):
    recorder.run(update, torch.randn(8, 11), torch.randn(8, 2))
