import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from dualml_torch.record import Recorder

kind, folder = sys.argv[1:]
torch.manual_seed(25)
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
data = TensorDataset(torch.randn(12, 5), torch.randn(12, 1))
sampler = DistributedSampler(data, num_replicas=1, rank=0, shuffle=True)
loader = DataLoader(data, batch_size=4, sampler=sampler)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
recorder = Recorder(model, folder, optimizer, steps=5)


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for epoch in range(2):
    if kind == "told":
        sampler.set_epoch(epoch)
    for x, y in loader:
        recorder.run(update, x, y)
