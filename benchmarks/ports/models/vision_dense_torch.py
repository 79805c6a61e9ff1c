"""DenseNet blocks (norm, relu, conv) with a transition."""

import torch
from torch import nn


class DenseLayer(nn.Module):
    def __init__(self, cin, growth, bn_size=2):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(cin)
        self.conv1 = nn.Conv2d(cin, bn_size * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(bn_size * growth)
        self.conv2 = nn.Conv2d(bn_size * growth, growth, 3, padding=1, bias=False)

    def forward(self, features):
        x = torch.cat(features, 1)
        x = self.conv1(torch.relu(self.norm1(x)))
        return self.conv2(torch.relu(self.norm2(x)))


class DenseBlock(nn.Module):
    def __init__(self, n, cin, growth):
        super().__init__()
        self.layers = nn.ModuleList([DenseLayer(cin + i * growth, growth) for i in range(n)])

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(3, 6, 3, padding=1, bias=False, padding_mode="reflect")
        self.block1 = DenseBlock(3, 6, 6)
        self.transition = nn.Sequential(
            nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 12, 1, bias=False), nn.AvgPool2d(2, 2)
        )
        self.block2 = DenseBlock(2, 12, 6)
        self.norm = nn.BatchNorm2d(24)
        self.classifier = nn.Linear(24, 5)

    def forward(self, x):
        x = self.transition(self.block1(self.conv0(x)))
        x = torch.relu(self.norm(self.block2(x)))
        return self.classifier(x.mean(dim=(2, 3)))
