"""A small VGG with BatchNorm."""

import torch
from torch import nn

CFG = [8, 8, "M", 16, "M"]


def make_layers(cfg, in_channels=3):
    layers = []
    for v in cfg:
        if v == "M":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [
                nn.Conv2d(in_channels, v, 3, padding=1, bias=False),
                nn.BatchNorm2d(v, eps=1e-3),
                nn.ReLU(inplace=True),
            ]
            in_channels = v
    return nn.Sequential(*layers)


class Net(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.features = make_layers(CFG)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Linear(16 * 2 * 2, 24),
            nn.ReLU(True),
            nn.Linear(24, num_classes),
        )

    def forward(self, x):
        x = self.features(x)
        x = self.avgpool(x)
        x = torch.flatten(x, 1)
        return self.classifier(x)
