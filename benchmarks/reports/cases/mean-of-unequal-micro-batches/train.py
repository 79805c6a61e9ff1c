import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

parts, folder = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(3)
model = nn.Sequential(nn.Embedding(40, 24), nn.LayerNorm(24), nn.Linear(24, 40))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
recorder = Recorder(model, folder, optimizer, steps=2)
LENGTHS = (12, 3, 9, 12, 2, 7)


def make_batch():
    tokens = torch.randint(1, 40, (6, 13))
    for row, length in enumerate(LENGTHS):
        tokens[row, length + 1 :] = -100
    return tokens


def update(tokens):
    optimizer.zero_grad()
    loss = 0.0
    for part in tokens.chunk(parts):
        x, y = part[:, :-1].clamp(min=0), part[:, 1:]
        one = nn.functional.cross_entropy(model(x).transpose(1, 2), y, ignore_index=-100) / parts
        one.backward()
        loss = loss + one.detach()
    recorder.saw(loss=loss)
    optimizer.step()


for _ in range(3):
    recorder.run(update, make_batch())
