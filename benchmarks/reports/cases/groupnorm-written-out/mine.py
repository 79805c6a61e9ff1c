import torch
from torch import nn


class GroupNorm3d(nn.Module):
    def __init__(self, channels, groups, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, channels, 1, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1, 1))
        self.groups, self.eps = groups, eps

    def forward(self, x):
        n, c, d, h, w = x.shape
        y = x.view(n, self.groups, -1)
        mean, var = y.mean(-1, keepdim=True), y.var(-1, keepdim=True, unbiased=False)
        y = ((y - mean) / (var + self.eps).sqrt()).view(n, c, d, h, w)
        return y * self.weight + self.bias


class Net(nn.Module):
    def __init__(self, channels=12, groups=4):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv3d(2, channels, 3, padding=1), GroupNorm3d(channels, groups)
        self.conv2, self.norm2 = nn.Conv3d(channels, channels, 3, padding=1), GroupNorm3d(channels, groups)
        self.final = nn.Conv3d(channels, 3, 1)

    def forward(self, x):
        x = nn.functional.elu(self.norm1(self.conv1(x)))
        return self.final(nn.functional.elu(self.norm2(self.conv2(x))))
