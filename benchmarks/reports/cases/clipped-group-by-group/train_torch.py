import numpy as np
import torch
from torch import nn

from dualml_torch.record import Recorder

r = np.random.default_rng(8)
model = nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 4))
for p in model.parameters():
    p.data = torch.from_numpy(r.normal(size=p.shape).astype("float32") * 0.4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = Recorder(model, "trace-torch", optimizer, steps=2)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(4 * model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(3):
    x, y = r.normal(size=(16, 12)).astype("float32"), r.integers(0, 4, 16)
    recorder.run(update, torch.from_numpy(x), torch.from_numpy(y))
