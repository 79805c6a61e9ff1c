import torch
from torch import nn


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Net(nn.Module):
    def __init__(self, dim=32, base=10000):
        super().__init__()
        self.dim, self.base = dim, base
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        inv_freq = 1.0 / self.base ** (torch.arange(0, self.dim, 2).float() / self.dim)
        freqs = torch.einsum("i,j->ij", torch.arange(x.shape[1]).type_as(inv_freq), inv_freq)
        emb = torch.cat((freqs, freqs), -1)
        cos, sin = emb.cos(), emb.sin()
        q, k = self.q(x), self.k(x)
        q, k = q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
        return q @ k.transpose(1, 2) / self.dim**0.5
