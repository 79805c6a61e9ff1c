import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

when, folder = sys.argv[1:]
torch.manual_seed(60)
model = nn.Sequential(nn.Embedding(30, 16), nn.RMSNorm(16), nn.Linear(16, 30))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
recorder = Recorder(model, folder, optimizer, steps=2)


def update(ids):
    optimizer.zero_grad()
    logits, labels = model(ids)[:, :-1], ids[:, 1:]
    count = labels.numel() if when == "after" else ids.numel()
    summed = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    loss = summed / count
    loss.backward()
    recorder.saw(loss=loss, weight=count)
    optimizer.step()


for _ in range(3):
    recorder.run(update, torch.randint(0, 30, (8, 6)))
