import copy
import sys

import torch
from torch import nn

from dualml_torch.record import Recorder

version, folder = sys.argv[1:]


class Average:
    def __init__(self, model, decay):
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.decay, self.step_count = decay, 20  # after its warm-up

    def get_decay(self):
        return min(self.decay, (1 + self.step_count) / (10 + self.step_count))

    @torch.no_grad()
    def step(self, model):
        self.step_count += 1
        if version == "fixed":
            weight = 1 - self.get_decay()
        else:
            self.decay = weight = 1 - self.get_decay()
        for mean, new in zip(self.model.parameters(), model.parameters()):
            mean.sub_(weight * (mean - new))


torch.manual_seed(22)
model = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 6))
average = Average(model, 0.9)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
both = nn.ModuleDict({"model": model, "average": average.model})
recorder = Recorder(both, folder, optimizer, steps=3)


def update(x):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x + 0.1 * x.sin()), x)
    loss.backward()
    recorder.saw(loss=loss)
    optimizer.step()
    average.step(model)


for _ in range(4):
    recorder.run(update, torch.randn(16, 6))
