import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8, classes=3):
        super().__init__()
        self.down, self.mix = nn.Conv2d(3, width, 3, 2, 1), nn.Conv2d(width, width, 1)
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.head = nn.Conv2d(width + 3, classes, 3, padding=1)

    def forward(self, x):
        y = self.up(torch.relu(self.mix(torch.relu(self.down(x)))))
        return self.head(torch.cat([x, y], 1))
