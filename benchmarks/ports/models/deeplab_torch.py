"""DeepLab: atrous pyramid with image pooling, a decoder with fine features, an auxiliary head."""

import torch
from torch import nn
from torch.nn import functional as F


class Unit(nn.Sequential):
    """Convolution, norm, ReLU."""

    def __init__(self, cin, cout, kernel=3, stride=1, dilation=1):
        pad = dilation * (kernel - 1) // 2
        super().__init__(
            nn.Conv2d(cin, cout, kernel, stride, pad, dilation, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(),
        )
        nn.init.uniform_(self[1].weight, 0.5, 1.5)
        nn.init.normal_(self[1].bias, std=0.2)


class Pyramid(nn.Module):
    """Pixels, three rates, and the whole image, side by side."""

    def __init__(self, cin, c, rates=(1, 2, 3)):
        super().__init__()
        self.point = Unit(cin, c, kernel=1)
        self.atrous = nn.ModuleList([Unit(cin, c, dilation=rate) for rate in rates])
        self.image = nn.Conv2d(cin, c, 1)
        self.project = Unit(c * (len(rates) + 2), c, kernel=1)

    def forward(self, x):
        whole = F.relu(self.image(F.adaptive_avg_pool2d(x, 1)))
        whole = F.interpolate(whole, size=x.shape[-2:], mode="bilinear", align_corners=False)
        parts = [self.point(x)] + [branch(x) for branch in self.atrous] + [whole]
        return self.project(torch.cat(parts, 1))


class Net(nn.Module):
    """Scores of the classes at all pixels, from the main and the auxiliary head."""

    def __init__(self, classes=5):
        super().__init__()
        self.stem = Unit(3, 8, stride=2)
        self.middle = Unit(8, 12, stride=2)
        self.deep = Unit(12, 12, dilation=2)
        self.deep_out = nn.Conv2d(12, 12, 1, bias=False)
        self.pyramid = Pyramid(12, 8)
        self.fine = nn.Conv2d(8, 4, 1)
        self.decode = Unit(12, 8)
        self.classify = nn.Conv2d(8, classes, 1)
        self.auxiliary = nn.Conv2d(12, classes, 1)

    def forward(self, x):
        size = x.shape[-2:]
        fine = self.stem(x)
        middle = self.middle(fine)
        deep = F.relu(middle + self.deep_out(self.deep(middle)))
        h = self.pyramid(deep)
        h = F.interpolate(h, size=fine.shape[-2:], mode="bilinear", align_corners=False)
        h = self.decode(torch.cat([h, F.relu(self.fine(fine))], 1))
        main = F.interpolate(self.classify(h), size=size, mode="bilinear", align_corners=False)
        side = self.auxiliary(middle)
        side = F.interpolate(side, size=size, mode="bilinear", align_corners=False)
        return main, side


def loss(outputs, targets):
    """Label 0 means unlabelled; the classes start at 1."""
    main, side = outputs
    labels = targets - 1
    labels[labels < 0] = 255
    main = F.cross_entropy(main, labels, ignore_index=255)
    return main + 0.4 * F.cross_entropy(side, labels, ignore_index=255)


class SGD(torch.optim.SGD):
    """Nesterov's momentum with a polynomial schedule."""

    def __init__(self, groups, total=8, power=0.9):
        super().__init__(groups, lr=0.02, momentum=0.9, nesterov=True)
        self.total, self.power = total, power
        self.base = [group["lr"] for group in self.param_groups]
        self.count = 0

    def step(self):
        factor = (1 - self.count / self.total) ** self.power
        for group, lr in zip(self.param_groups, self.base):
            group["lr"] = lr * factor
        super().step()
        self.count += 1


def optimizer(parameters):
    """Biases and norms learn twice as fast and do not decay."""
    parameters = list(parameters)
    return SGD(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.01},
            {"params": [p for p in parameters if p.ndim == 1], "lr": 0.04},
        ]
    )
