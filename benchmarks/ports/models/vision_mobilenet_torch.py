"""MobileNetV3-like: inverted residuals with squeeze-and-excite and hard-swish."""

import torch.nn.functional as F
from torch import nn


class ConvBNAct(nn.Sequential):
    def __init__(self, cin, cout, k, stride=1, groups=1, act=nn.Hardswish):
        layers = [
            nn.Conv2d(cin, cout, k, stride, (k - 1) // 2, groups=groups, bias=False),
            nn.BatchNorm2d(cout, eps=0.001, momentum=0.01),
        ]
        if act is not None:
            layers.append(act())
        super().__init__(*layers)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeeze):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeeze, 1)
        self.fc2 = nn.Conv2d(squeeze, channels, 1)

    def forward(self, x):
        scale = F.hardsigmoid(self.fc2(F.relu(self.fc1(self.avgpool(x)))))
        return x * scale


class InvertedResidual(nn.Module):
    def __init__(self, cin, hidden, cout, k, stride):
        super().__init__()
        self.use_skip = stride == 1 and cin == cout
        self.expand = ConvBNAct(cin, hidden, 1)
        self.depthwise = ConvBNAct(hidden, hidden, k, stride, groups=hidden)
        self.se = SqueezeExcite(hidden, 6)
        self.project = ConvBNAct(hidden, cout, 1, act=None)

    def forward(self, x):
        y = self.expand(x)
        y = self.depthwise(y)
        y = self.se(y)
        y = self.project(y)
        return x + y if self.use_skip else y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBNAct(3, 8, 3, 2)
        self.blocks = nn.Sequential(
            InvertedResidual(8, 16, 8, 3, 1),
            InvertedResidual(8, 20, 12, 5, 2),
            InvertedResidual(12, 24, 12, 5, 1),
        )
        self.classifier = nn.Sequential(nn.Linear(12, 20), nn.Hardswish(), nn.Linear(20, 5))

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return self.classifier(x.mean([2, 3]))
