import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 8))
        self.text = nn.Sequential(nn.Linear(7, 24), nn.GELU(), nn.Linear(24, 8))

    def forward(self, image, text):
        return tuple(nn.functional.normalize(t, dim=-1) for t in (self.image(image), self.text(text)))


def gather(features):
    if ranks == 1:
        return features
    parts = [torch.zeros_like(features) for _ in range(ranks)]
    dist.all_gather(parts, features.detach())
    parts[rank] = features
    return torch.cat(parts)


torch.manual_seed(78)
model, group = Towers(), None
if ranks > 1:
    dist.init_process_group("gloo")
    group, model = True, nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
recorder = Recorder(model, sys.argv[1], optimizer, steps=2, group=group)
images, texts = torch.randn(2, 10, 12), torch.randn(2, 10, 7)


def update(image, text):
    optimizer.zero_grad()
    a, b = (gather(f) for f in model(image, text))
    logits, labels = 10 * a @ b.T, torch.arange(len(a))
    loss = (nn.functional.cross_entropy(logits, labels) + nn.functional.cross_entropy(logits.T, labels)) / 2
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()


for image, text in zip(images, texts):
    recorder.run(update, image.chunk(ranks)[rank], text.chunk(ranks)[rank])
