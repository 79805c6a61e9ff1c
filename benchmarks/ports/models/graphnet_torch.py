"""A message-passing network over edge lists: GINE, GraphSAGE, degree-normed and max layers, three readouts."""

import torch
from torch import nn
from torch.nn import functional as F


def scatter_sum(values, index, size):
    return values.new_zeros(size, values.shape[1]).index_add(0, index, values)


def scatter_mean(values, index, size):
    count = torch.bincount(index, minlength=size).clamp(min=1)
    return scatter_sum(values, index, size) / count[:, None]


def scatter_max(values, index, size):
    rows = index[:, None].expand_as(values)
    start = values.new_zeros(size, values.shape[1])
    return start.scatter_reduce(0, rows, values, reduce="amax", include_self=False)


class GINE(nn.Module):
    """Sum of relu(neighbour + edge), an own weight for the node itself."""

    def __init__(self, d):
        super().__init__()
        self.eps = nn.Parameter(torch.tensor(0.3))
        self.edge = nn.Linear(3, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d, bias=False), nn.BatchNorm1d(2 * d), nn.ReLU(), nn.Linear(2 * d, d))

    def forward(self, x, src, dst, edge):
        message = F.relu(x[src] + self.edge(edge))
        return self.mlp((1 + self.eps) * x + scatter_sum(message, dst, len(x)))


class SAGE(nn.Module):
    """Mean of the neighbours, the node itself in a second layer, rows of length one."""

    def __init__(self, d):
        super().__init__()
        self.neighbour = nn.Linear(d, d)
        self.itself = nn.Linear(d, d, bias=False)

    def forward(self, x, src, dst):
        out = self.neighbour(scatter_mean(x[src], dst, len(x))) + self.itself(x)
        return F.normalize(out, p=2, dim=-1)


class GCN(nn.Module):
    """Self-loops and symmetric norm by the degrees."""

    def __init__(self, d):
        super().__init__()
        self.weight = nn.Linear(d, d, bias=False)
        self.bias = nn.Parameter(0.1 * torch.randn(d))

    def forward(self, x, src, dst):
        loop = torch.arange(len(x))
        src, dst = torch.cat([src, loop]), torch.cat([dst, loop])
        degree = torch.bincount(dst, minlength=len(x)).float()
        norm = degree.rsqrt()
        weight = norm[src] * norm[dst]
        return scatter_sum(self.weight(x)[src] * weight[:, None], dst, len(x)) + self.bias


class EdgePool(nn.Module):
    """Maximum over the incoming edges of a function of both ends."""

    def __init__(self, d):
        super().__init__()
        self.linear = nn.Linear(2 * d, d)

    def forward(self, x, src, dst):
        return scatter_max(self.linear(torch.cat([x[dst], x[src] - x[dst]], dim=-1)), dst, len(x))


class Net(nn.Module):
    """Classes of the graphs in a batch."""

    def __init__(self, d=10, graphs=3):
        super().__init__()
        self.graphs = graphs
        self.embed = nn.Linear(5, d)
        self.gine = GINE(d)
        self.sage = SAGE(d)
        self.gcn = GCN(d)
        self.pool = EdgePool(d)
        self.norm = nn.BatchNorm1d(2 * d)
        self.head = nn.Sequential(nn.Linear(6 * d, 16), nn.ELU(), nn.Linear(16, 4))

    def forward(self, x, edges, edge, batch):
        src, dst = edges
        x = self.embed(x)
        a = F.elu(self.gine(x, src, dst, edge))
        b = x + self.sage(a, src, dst)
        c = F.elu(self.gcn(b, src, dst) + self.pool(b, src, dst))
        h = self.norm(torch.cat([a, c], dim=-1))
        pooled = [f(h, batch, self.graphs) for f in (scatter_mean, scatter_max, scatter_sum)]
        return self.head(torch.cat(pooled, dim=-1))
