import torch
from torch import nn


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Rotary(nn.Module):
    def __init__(self, dim, base=10000, precision=torch.half):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq.to(precision), persistent=False)

    def forward(self, x):
        freqs = torch.einsum("i,j->ij", torch.arange(x.shape[1]).type_as(self.inv_freq), self.inv_freq)
        emb = torch.cat((freqs, freqs), -1)
        return emb.cos().to(x.dtype), emb.sin().to(x.dtype)


class Net(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.dim, self.rotary = dim, Rotary(dim)
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        cos, sin = self.rotary(x)
        q, k = self.q(x), self.k(x)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        return q @ k.transpose(1, 2) / self.dim**0.5
