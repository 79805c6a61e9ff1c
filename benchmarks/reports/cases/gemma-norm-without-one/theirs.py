import torch
from torch import nn


class GemmaRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.randn(dim) * 0.1)

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * (1.0 + self.weight.float())).type_as(x)


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.input_norm, self.post_norm = GemmaRMSNorm(width), GemmaRMSNorm(width)
        self.gate_proj, self.up_proj = nn.Linear(width, 48, bias=False), nn.Linear(width, 48, bias=False)
        self.down_proj = nn.Linear(48, width, bias=False)

    def forward(self, x):
        h = self.input_norm(x)
        h = self.down_proj(nn.functional.gelu(self.gate_proj(h), approximate="tanh") * self.up_proj(h))
        return x + self.post_norm(h)
