import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(1 + 0.1 * torch.randn(dim)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight.float()).type_as(x)


class Net(nn.Module):
    def __init__(self, vocab=50, width=32):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(vocab, width), RMSNorm(width), nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.norm(self.embed(ids)))
