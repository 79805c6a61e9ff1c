import numpy as np
import torch
from torch import nn

from dualml_torch.record import Recorder

r = np.random.default_rng(63)
model = nn.Sequential(nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 1))
for p in model.parameters():
    p.data = torch.from_numpy(r.normal(size=p.shape).astype("float32") * 0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
recorder = Recorder(model, "trace-torch", optimizer, steps=2)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(0.2 * model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(3):
    x, y = r.normal(size=(16, 8)).astype("float32"), r.normal(size=(16, 1)).astype("float32")
    recorder.run(update, torch.from_numpy(x), torch.from_numpy(y))
