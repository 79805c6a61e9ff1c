"""Graph attention on a list of edges."""

import torch
from torch import nn
from torch.nn import functional as F


class GATLayer(nn.Module):
    """Several heads; softmax over the edges into a node."""

    def __init__(self, inputs, size, heads, concat):
        super().__init__()
        self.heads, self.size, self.concat = heads, size, concat
        self.lin = nn.Linear(inputs, heads * size, bias=False)
        self.att_src = nn.Parameter(torch.empty(heads, size))
        self.att_dst = nn.Parameter(torch.empty(heads, size))
        self.bias = nn.Parameter(torch.empty(heads * size if concat else size))
        nn.init.xavier_normal_(self.att_src)
        nn.init.xavier_normal_(self.att_dst)
        nn.init.uniform_(self.bias, -0.2, 0.2)

    def forward(self, x, src, dst):
        n = len(x)
        h = self.lin(x).view(n, self.heads, self.size)
        score = (h * self.att_src).sum(-1)[src] + (h * self.att_dst).sum(-1)[dst]
        score = F.leaky_relu(score, 0.2).exp()
        total = torch.zeros(n, self.heads).index_add(0, dst, score)
        alpha = score / (total[dst] + 1e-16)
        out = torch.zeros_like(h).index_add(0, dst, h[src] * alpha[:, :, None])
        out = out.flatten(1) if self.concat else out.mean(1)
        return out + self.bias


class Net(nn.Module):
    """Two layers, self-loops are added to the edges."""

    def __init__(self, features=5, size=4, heads=3, outputs=3):
        super().__init__()
        self.gat1 = GATLayer(features, size, heads, True)
        self.gat2 = GATLayer(heads * size, outputs, heads, False)

    def forward(self, x, src, dst):
        loops = torch.arange(len(x))
        src, dst = torch.cat([src, loops]), torch.cat([dst, loops])
        return self.gat2(F.elu(self.gat1(x, src, dst)), src, dst)
