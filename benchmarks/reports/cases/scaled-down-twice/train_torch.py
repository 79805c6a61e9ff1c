import numpy as np
import torch
from torch import nn

from dualml_torch.record import Recorder

r = np.random.default_rng(9)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))
for p in model.parameters():
    p.data = torch.from_numpy(r.normal(size=p.shape).astype("float32") * 0.3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
recorder = Recorder(model, "trace-torch", optimizer, steps=3)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(4):
    x, y = r.normal(size=(16, 10)).astype("float32"), r.integers(0, 3, 16)
    recorder.run(update, torch.from_numpy(x), torch.from_numpy(y))
