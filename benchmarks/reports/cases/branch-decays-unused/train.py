import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

cleared, folder = sys.argv[1:]


class Supernet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem, self.head = nn.Linear(6, width), nn.Linear(width, 3)
        self.branches = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x, path):
        x = torch.relu(self.stem(x))
        return self.head(x + self.branches[int(path)](x))


torch.manual_seed(32)
model = Supernet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)
recorder = Recorder(model, folder, optimizer, steps=4)


def update(x, y, path):
    optimizer.zero_grad(set_to_none=cleared == "none")
    loss = nn.functional.cross_entropy(model(x, path), y)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for step in range(5):
    x, y = torch.randn(16, 6), torch.randint(0, 3, (16,))
    recorder.run(update, x, y, torch.tensor(step % 3))
