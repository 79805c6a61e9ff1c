import copy
import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

given, folder = sys.argv[1:]


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder_q = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 8))
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)

    @torch.no_grad()
    def follow(self, momentum=0.99):
        for k, q in zip(self.encoder_k.parameters(), self.encoder_q.parameters()):
            k.mul_(momentum).add_(q, alpha=1 - momentum)

    def forward(self, a, b):
        q = nn.functional.normalize(self.encoder_q(a), dim=-1)
        with torch.no_grad():
            self.follow()
            k = nn.functional.normalize(self.encoder_k(b), dim=-1)
        return q @ k.T / 0.2


torch.manual_seed(83)
model = Pair()
chosen = model.parameters() if given == "all" else model.encoder_q.parameters()
optimizer = torch.optim.SGD(chosen, lr=0.05, momentum=0.9, weight_decay=0.01)
recorder = Recorder(model, folder, optimizer, steps=4)


def update(a, b):
    loss = nn.functional.cross_entropy(model(a, b), torch.arange(len(a)))
    optimizer.zero_grad()
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(4):
    x = torch.randn(12, 9)
    recorder.run(update, x + 0.1 * torch.randn(12, 9), x + 0.1 * torch.randn(12, 9))
