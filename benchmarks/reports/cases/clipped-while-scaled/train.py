import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

order, folder = sys.argv[1:]
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
recorder = Recorder(model, folder, optimizer, steps=3)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    if order == "unscaled":
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if order == "scaled":
        scaler.unscale_(optimizer)
    recorder.saw(loss=loss)
    scaler.step(optimizer)
    scaler.update()


for _ in range(5):
    recorder.run(update, 3 * torch.randn(24, 16), torch.randint(0, 4, (24,)))
