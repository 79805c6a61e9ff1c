import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dualml_torch.record import Recorder

r = np.random.default_rng(26)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
for p in model.parameters():
    p.data = torch.from_numpy(r.normal(size=p.shape).astype("float32") * 0.3)
x, y = r.normal(size=(20, 6)).astype("float32"), r.integers(0, 3, 20)
loader = DataLoader(TensorDataset(torch.from_numpy(x), torch.from_numpy(y)), batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = Recorder(model, "trace-torch", optimizer, steps=4)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(2):
    for x, y in loader:
        recorder.run(update, x, y)
