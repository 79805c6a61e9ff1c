import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

parts, folder = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(4)
model = nn.Sequential(nn.Embedding(40, 24), nn.LayerNorm(24), nn.Linear(24, 40))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
recorder = Recorder(model, folder, optimizer, steps=3)


def update(tokens):
    optimizer.zero_grad()
    loss = 0.0
    for part in tokens.chunk(parts):
        logits = model(part[:, :-1])
        one = nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()) / parts
        one.backward()
        loss = loss + one.detach()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(4):
    recorder.run(update, torch.randint(0, 40, (6, 11)))
