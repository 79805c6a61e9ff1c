"""Graph convolutions on a dense adjacency, with a batch norm between."""

import torch
from torch import nn


class GraphConv(nn.Module):
    """X to A X W + b."""

    def __init__(self, inputs, outputs, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        nn.init.xavier_uniform_(self.weight)
        if bias:
            nn.init.uniform_(self.bias, -0.3, 0.3)

    def forward(self, x, a):
        x = a @ (x @ self.weight)
        return x if self.bias is None else x + self.bias


def normalise(a):
    """Symmetric adjacency with self-loops, D^-1/2 A D^-1/2."""
    a = ((a + a.T) > 0).float()
    a = a.fill_diagonal_(0) + torch.eye(len(a))
    d = a.sum(1).pow(-0.5)
    return d[:, None] * a * d[None, :]


class Net(nn.Module):
    """Two layers for the nodes' classes, a skip connection over the second."""

    def __init__(self, features=6, hidden=12, classes=4):
        super().__init__()
        self.conv1 = GraphConv(features, hidden, bias=False)
        self.bn = nn.BatchNorm1d(hidden)
        self.conv2 = GraphConv(hidden, hidden)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x, adjacency):
        a = normalise(adjacency)
        h = torch.relu(self.bn(self.conv1(x, a)))
        h = h + torch.relu(self.conv2(h, a))
        return self.fc(h)
