import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind = sys.argv[1]
torch.manual_seed(36)
model = nn.Sequential(nn.Linear(7, 14), nn.ReLU(), nn.Linear(14, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = [(torch.randn(8, 7), torch.randint(0, 2, (8,))) for _ in range(9)]
recorder = None


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    if recorder:
        recorder.saw(loss=loss)
    optimizer.step()


for x, y in data[:4]:
    update(x, y)
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "state.pt")
saved = torch.load("state.pt")
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
recorder = Recorder(model, kind, optimizer, steps=3)
for x, y in data[4:] if kind == "through" else data:
    recorder.run(update, x, y)
