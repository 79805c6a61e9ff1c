import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, classes, 1)

    def forward(self, x):
        return self.up(torch.relu(self.down(x)))


def loss(outputs, targets, eps=1e-7):
    p = outputs.sigmoid().flatten(2)
    intersection = (p * targets).sum(2)
    cardinality = (p + targets).sum(2)
    return (1 - 2 * intersection / cardinality.clamp_min(eps)).mean()
