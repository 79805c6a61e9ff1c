import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(9, 12, bias=False), nn.ReLU(), nn.Linear(12, 4, bias=False))


class Signed(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.9, nesterov=False):
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(p.grad)
                g = p.grad.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
                p.add_(g / (g.norm() + 1e-7), alpha=-group["lr"])


def make(parameters):
    return Signed(parameters)
