import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dualml_torch.record import Recorder

unit, folder = sys.argv[1:]
torch.manual_seed(23)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
data = TensorDataset(torch.randn(24, 1, 6, 6), torch.randint(0, 2, (24,)))
loader = DataLoader(data, batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8)
recorder = Recorder(model, folder, optimizer, steps=6)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(2):
    for x, y in loader:
        recorder.run(update, x, y)
        if unit == "batch":
            scheduler.step()
    if unit == "epoch":
        scheduler.step()
