import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

folder = sys.argv[1]
torch.manual_seed(28)
model = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 6))
x, y = torch.randn(8, 12), torch.randint(0, 6, (8,))
torch.seed()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
recorder = Recorder(model, folder, optimizer, steps=2)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(2):
    recorder.run(update, x, y)
