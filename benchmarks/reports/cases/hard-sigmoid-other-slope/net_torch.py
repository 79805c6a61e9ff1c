import torch
from torch import nn


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x):
        y = torch.relu(self.reduce(x.mean((2, 3), keepdim=True)))
        return x * self.gate(self.expand(y))


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width)
        self.act, self.se = nn.Hardswish(), SqueezeExcite(width)
        self.fc = nn.Linear(width, 6)

    def forward(self, x):
        return self.fc(self.se(self.act(self.bn(self.stem(x)))).mean((2, 3)))
