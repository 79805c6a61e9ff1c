import os
import sys

import torch
from torch import distributed as dist
from torch import nn

from dualml_torch.record import Recorder

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Sum(torch.autograd.Function):
    """The sum over all processes, of a value and of its gradient."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    backward = forward


class SyncNorm(nn.BatchNorm1d):
    def forward(self, x):
        if ranks == 1:
            return super().forward(x)
        mean = Sum.apply(x.mean(0)) / ranks
        var = Sum.apply(x.square().mean(0)) / ranks - mean.square()
        n = x.shape[0] * ranks
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * n / (n - 1), self.momentum)
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


torch.manual_seed(77)
model = nn.Sequential(nn.Linear(6, 14), SyncNorm(14), nn.ReLU(), nn.Linear(14, 3))
group = None
if ranks > 1:
    dist.init_process_group("gloo")
    group, model = True, nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
recorder = Recorder(model, sys.argv[1], optimizer, steps=2, group=group)
x, y = torch.randn(2, 12, 6) + torch.arange(12.0)[:, None] / 4, torch.randint(0, 3, (2, 12))
mine = slice(None) if ranks == 1 else (slice(9), slice(9, None))[rank]


def update(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    (loss * len(x) * ranks / 12).backward()
    recorder.saw(loss=loss, weight=len(x))
    optimizer.step()


for xs, ys in zip(x, y):
    recorder.run(update, xs[mine], ys[mine])
