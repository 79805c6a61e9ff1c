import torch
from torch import nn
from torch.nn import functional as F


class MaxPool2dStaticSamePadding(nn.Module):
    def __init__(self, kernel, stride):
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x):
        side = self.kernel // 2
        return F.max_pool2d(F.pad(x, (side, side, side, side)), self.kernel, self.stride)


class Net(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.up, self.norm = nn.Conv2d(3, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.pool = MaxPool2dStaticSamePadding(3, 2)
        self.fuse = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.fuse(self.pool(self.norm(self.up(x)))).mean((2, 3))
