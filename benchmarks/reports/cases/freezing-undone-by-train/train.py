import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind, folder = sys.argv[1:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 3)

    def freeze(self):
        self.encoder.requires_grad_(False)
        self.encoder[1].eval()

    def forward(self, x):
        return self.head(self.encoder(x))


torch.manual_seed(50)
model = Net()
with torch.no_grad():
    for _ in range(5):
        model(2 * torch.randn(32, 8) + 1)
model.freeze()
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
recorder = Recorder(model, folder, optimizer, steps=2)


def update(x, y):
    model.train()
    if kind == "frozen":
        model.freeze()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(3):
    recorder.run(update, torch.randn(16, 8), torch.randint(0, 3, (16,)))
