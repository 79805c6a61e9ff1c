"""An autoencoder whose decoder uses the encoder's weights transposed."""

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    """Twelve to eight to four and back."""

    def __init__(self):
        super().__init__()
        self.enc1 = nn.Linear(12, 8)
        self.enc2 = nn.Linear(8, 4)
        self.dec2_bias = nn.Parameter(torch.zeros(8))
        self.dec1_bias = nn.Parameter(torch.zeros(12))

    def forward(self, x):
        h = torch.tanh(self.enc1(x))
        code = torch.tanh(self.enc2(h))
        h = torch.tanh(F.linear(code, self.enc2.weight.t(), self.dec2_bias))
        return F.linear(h, self.enc1.weight.t(), self.dec1_bias)


class ClippedSGD(torch.optim.SGD):
    """Clips the norm of all gradients together before each step."""

    def step(self, closure=None):
        parameters = [p for g in self.param_groups for p in g["params"]]
        torch.nn.utils.clip_grad_norm_(parameters, 0.05)
        return super().step(closure)


def optimizer(parameters):
    """Momentum 0.9."""
    return ClippedSGD(parameters, lr=0.1, momentum=0.9)
