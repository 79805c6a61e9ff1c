import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

kind = sys.argv[1]


def make():
    torch.manual_seed(9)
    model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)


def train(model, optimizer, scheduler, batches, recorder=None):
    def update(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if recorder:
            recorder.saw(loss=loss)
        optimizer.step()

    for x, y in batches:
        recorder.run(update, x, y) if recorder else update(x, y)
        scheduler.step()


model, optimizer, scheduler = make()
batches = [(torch.randn(16, 8), torch.randint(0, 3, (16,))) for _ in range(8)]
train(model, optimizer, scheduler, batches[:3])
if kind == "resumed":
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(saved, "last.pt")
    model, optimizer, scheduler = make()
    saved = torch.load("last.pt")
    optimizer.load_state_dict(saved["optimizer"])
    model.load_state_dict(saved["model"])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
recorder = Recorder(model, kind, optimizer, steps=4)
train(model, optimizer, scheduler, batches[3:], recorder)
