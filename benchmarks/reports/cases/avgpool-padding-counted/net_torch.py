import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.pool = nn.AvgPool2d(3, 2, 1)
        self.mix = nn.Conv2d(2 * channels, channels, 1)
        self.reduce = nn.Conv2d(channels, channels, 3, 2, 1)
        self.head = nn.Linear(channels, 6)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        x = torch.cat([self.pool(x), self.reduce(x)], 1)
        return self.head(torch.relu(self.mix(x)).mean((2, 3)))
