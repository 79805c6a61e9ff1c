import torch
from torch import nn


class Dense(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(width), nn.Conv2d(width, growth, 3, padding=1)

    def forward(self, x):
        return torch.cat([x, self.conv(self.norm(x).relu())], 1)


class Net(nn.Module):
    def __init__(self, width=16, growth=8, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.norm1, self.pool1 = nn.BatchNorm2d(width), nn.MaxPool2d(3, 2, padding=1, ceil_mode=True)
        self.block = nn.Sequential(Dense(width, growth), Dense(width + growth, growth))
        self.fc = nn.Linear(width + 2 * growth, classes)

    def forward(self, x):
        x = self.pool1(self.norm1(self.conv1(x)).relu())
        return self.fc(self.block(x).relu().mean((2, 3)))
