import sys

import torch
from torch import nn

from dualml_torch.record import Recorder


class Experts(nn.Module):
    def __init__(self, width=12, count=4):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        mixed = sum(weights[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
        # independent of how a batch is cut, so that only its weight can differ
        self.balance = (weights.log().mean(-1) * -1).mean()
        return self.head(x + mixed)


parts, folder = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(6)
model = Experts()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
recorder = Recorder(model, folder, optimizer, steps=2)


def update(x, y):
    optimizer.zero_grad()
    total = 0.0
    for part, labels in zip(x.chunk(parts), y.chunk(parts)):
        loss = nn.functional.cross_entropy(model(part), labels) / parts
        (loss + 0.1 * model.balance).backward()
        total = total + loss.detach()
    recorder.saw(loss=total)
    optimizer.step()


for _ in range(3):
    recorder.run(update, torch.randn(24, 12), torch.randint(0, 5, (24,)))
