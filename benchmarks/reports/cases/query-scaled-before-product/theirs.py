import math

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=30, heads=5):
        super().__init__()
        self.heads = heads
        self.q_lin, self.k_lin, self.v_lin = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.out_lin = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (p(x).view(b, t, self.heads, -1).transpose(1, 2) for p in (self.q_lin, self.k_lin, self.v_lin))
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(d // self.heads)
        return self.out_lin((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
