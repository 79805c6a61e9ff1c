import torch
from torch import nn


class ResidualConvUnit(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.conv1 = nn.Conv2d(features, features, 3, padding=1)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1)

    def forward(self, x):
        return self.conv2(torch.relu(self.conv1(torch.relu(x)))) + x


class Net(nn.Module):
    def __init__(self, features=8):
        super().__init__()
        self.project = nn.Conv2d(3, features, 1)
        self.unit1, self.unit2 = ResidualConvUnit(features), ResidualConvUnit(features)
        self.head = nn.Conv2d(features, 1, 1)

    def forward(self, image):
        return self.head(self.unit2(self.unit1(self.project(image))))
