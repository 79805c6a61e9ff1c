import torch
from torch import nn


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Rotary(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.register_buffer("inv_freq", base ** (-torch.arange(0, dim, 2).float() / dim), persistent=False)

    def forward(self, x):
        t = torch.arange(x.shape[1]).to(self.inv_freq.dtype)
        angles = torch.outer(t, self.inv_freq)
        angles = torch.cat((angles, angles), -1)
        return angles.cos(), angles.sin()


class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.rotary, self.proj, self.out = Rotary(dim), nn.Linear(dim, dim), nn.Linear(dim, 8)

    def forward(self, x):
        q = self.proj(x)
        cos, sin = self.rotary(q)
        return self.out(q * cos + rotate_half(q) * sin)
