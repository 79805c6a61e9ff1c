import math

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, dim=30, heads=5):
        super().__init__()
        self.n_heads, self.dim_per_head = heads, dim // heads
        self.q_lin, self.k_lin, self.v_lin = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.out_lin = nn.Linear(dim, dim)

    def shape(self, x):
        return x.view(x.shape[0], -1, self.n_heads, self.dim_per_head).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.shape(self.q_lin(x)), self.shape(self.k_lin(x)), self.shape(self.v_lin(x))
        q = q / math.sqrt(self.dim_per_head)
        weights = torch.softmax(torch.matmul(q, k.transpose(2, 3)).float(), dim=-1).type_as(q)
        context = torch.matmul(weights, v).transpose(1, 2).contiguous()
        return self.out_lin(context.view(x.shape[0], -1, self.n_heads * self.dim_per_head))
