import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind, folder = sys.argv[1:]
torch.manual_seed(15)
model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 3))
parameters = list(model.parameters())
LR, B1, B2, EPS, DECAY = 5e-3, 0.9, 0.99, 1e-6, 0.1
theirs = torch.optim.AdamW(parameters, lr=LR, betas=(B1, B2), eps=EPS, weight_decay=DECAY)
moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
count = torch.zeros(())
recorder = Recorder(model, folder, steps=4)


@torch.no_grad()
def step():
    count.add_(1)
    for p, (m, v) in zip(parameters, moments):
        m.mul_(B1).add_(p.grad, alpha=1 - B1)
        v.mul_(B2).addcmul_(p.grad, p.grad, value=1 - B2)
        size = LR / (1 - B1**count)
        root = v.sqrt() / (1 - B2**count).sqrt() + EPS
        p.copy_(p - size * (m / root) - LR * DECAY * p)


def update(x, y):
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    recorder.saw(loss=loss)
    theirs.step() if kind == "theirs" else step()


for _ in range(5):
    recorder.run(update, torch.randn(18, 8), torch.randint(0, 3, (18,)))
