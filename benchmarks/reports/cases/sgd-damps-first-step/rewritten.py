import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 20), nn.SiLU(), nn.Linear(20, 3))


class SGD(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.0, dampening=0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(p.grad, alpha=1 - group["dampening"])
                p.add_(buffer, alpha=-group["lr"])


def make(parameters):
    return SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5)
