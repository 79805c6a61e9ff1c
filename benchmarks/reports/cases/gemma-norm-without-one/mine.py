import torch
from torch import nn


class LigerRMSNorm(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(hidden)), eps

    def forward(self, x):
        rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (x * rstd)


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.input_norm, self.post_norm = LigerRMSNorm(width), LigerRMSNorm(width)
        self.gate_proj, self.up_proj = nn.Linear(width, 48, bias=False), nn.Linear(width, 48, bias=False)
        self.down_proj = nn.Linear(48, width, bias=False)

    def forward(self, x):
        h = self.input_norm(x)
        h = self.down_proj(nn.functional.gelu(self.gate_proj(h), approximate="tanh") * self.up_proj(h))
        return x + self.post_norm(h)
