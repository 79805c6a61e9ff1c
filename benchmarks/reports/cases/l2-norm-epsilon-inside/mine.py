import torch
from torch import nn


class L2Norm(nn.Module):
    def __init__(self, eps=1e-8):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + self.eps)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.norm = nn.Linear(20, 12, bias=False), L2Norm()
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.norm(self.project(x)))
