import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        norm = dict(eps=1e-3, momentum=0.01)
        self.expand, self.bn1 = nn.Conv2d(4, channels, 1, bias=False), nn.BatchNorm2d(channels, **norm)
        self.depth = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.bn2 = nn.BatchNorm2d(channels, **norm)
        self.head = nn.Linear(channels, 5)

    def forward(self, x):
        x = torch.nn.functional.gelu(self.bn1(self.expand(x)))
        x = torch.nn.functional.gelu(self.bn2(self.depth(x)))
        return self.head(x.mean((2, 3)))
