"""A small EfficientNet; the norm of its stem keeps its statistics."""

import torch
from torch import nn
from torch.nn import functional as F


class FrozenNorm(nn.BatchNorm2d):
    """Batch norm that always takes the running statistics; its scale and shift are trained."""

    def __init__(self, channels):
        super().__init__(channels, eps=1e-3, momentum=0.01)
        nn.init.normal_(self.running_mean, std=0.3)
        nn.init.uniform_(self.running_var, 0.4, 1.6)

    def forward(self, x):
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )


def norm(channels):
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class SqueezeExcite(nn.Module):
    """A gate for each channel from the mean over the image."""

    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce = nn.Conv2d(channels, reduced, 1)
        self.expand = nn.Conv2d(reduced, channels, 1)

    def forward(self, x):
        s = F.adaptive_avg_pool2d(x, 1)
        return torch.sigmoid(self.expand(F.silu(self.reduce(s))))


class MBConv(nn.Module):
    """Expand, depthwise convolution, squeeze-excite, project without activation."""

    def __init__(self, cin, cout, ratio, kernel, stride):
        super().__init__()
        hidden = cin * ratio
        self.expand = (
            nn.Sequential(nn.Conv2d(cin, hidden, 1, bias=False), norm(hidden), nn.SiLU())
            if ratio > 1
            else nn.Identity()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(
                hidden, hidden, kernel, stride, padding=kernel // 2, groups=hidden, bias=False
            ),
            norm(hidden),
            nn.SiLU(),
        )
        self.se = SqueezeExcite(hidden, max(2, cin // 4))
        self.project = nn.Sequential(nn.Conv2d(hidden, cout, 1, bias=False), norm(cout))
        self.residual = stride == 1 and cin == cout

    def forward(self, x):
        h = self.depthwise(self.expand(x))
        h = self.project(h * self.se(h))
        return x + h if self.residual else h


class Net(nn.Module):
    """Scores of five classes."""

    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.stem_norm = FrozenNorm(8)
        self.blocks = nn.Sequential(
            MBConv(8, 8, 1, 3, 1), MBConv(8, 8, 4, 5, 1), MBConv(8, 12, 1, 3, 2)
        )
        self.head = nn.Conv2d(12, 24, 1)
        self.classifier = nn.Linear(24, classes)

    def forward(self, x):
        h = F.silu(self.stem_norm(self.stem(x)))
        h = self.blocks(h)
        h = F.silu(self.head(h))
        return self.classifier(h.mean((2, 3)))
