import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.up, self.norm = nn.Conv2d(3, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.fuse = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.fuse(self.pool(self.norm(self.up(x)))).mean((2, 3))
