"""A small image classifier: convolutions, a residual block over all positions, a mean, a head."""

from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8, momentum=0.1)
        self.act = nn.GELU()
        self.pool = nn.MaxPool2d(2)
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 32)
        self.gelu = nn.GELU()
        self.down = nn.Linear(32, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.pool(self.act(self.bn(self.conv(x))))
        tokens = x.flatten(2).transpose(1, 2)  # (batch, positions, channels)
        tokens = tokens + self.down(self.gelu(self.up(self.norm(tokens))))
        return self.head(tokens.mean(1))
