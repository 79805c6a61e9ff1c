import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(10, 24), nn.Linear(24, 4)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class RMSpropTF(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, alpha=0.9, eps=1e-10):
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["square_avg"] = torch.zeros_like(p)
                average = state["square_avg"]
                average.mul_(group["alpha"]).addcmul_(p.grad, p.grad, value=1 - group["alpha"])
                p.addcdiv_(p.grad, (average + group["eps"]).sqrt(), value=-group["lr"])


def make(parameters):
    return RMSpropTF(parameters, lr=1e-2, alpha=0.9, eps=1e-3)
