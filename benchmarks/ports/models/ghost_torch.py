"""A small mobile network of ghost bottlenecks and shuffle units."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class HardSwish(nn.Module):
    def forward(self, x):
        return x * F.relu6(x + 3.0) / 6.0


class SqueezeExcite(nn.Module):
    """Channel attention with a hard sigmoid as gate."""

    def __init__(self, channels, reduced):
        super().__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.conv_reduce = nn.Conv2d(channels, reduced, 1, bias=True)
        self.act1 = nn.ReLU()
        self.conv_expand = nn.Conv2d(reduced, channels, 1, bias=True)

    def forward(self, x):
        s = self.avg_pool(x)
        s = self.conv_expand(self.act1(self.conv_reduce(s)))
        return x * F.relu6(s + 3.0) / 6.0


class GhostModule(nn.Module):
    """Half of the features by a convolution, the others from those by a cheap depthwise one."""

    def __init__(self, inp, oup, kernel_size=1, ratio=2, dw_size=3, relu=True):
        super().__init__()
        self.oup = oup
        init_channels = math.ceil(oup / ratio)
        new_channels = init_channels * (ratio - 1)
        self.primary_conv = nn.Sequential(
            nn.Conv2d(inp, init_channels, kernel_size, 1, kernel_size // 2, bias=False),
            nn.BatchNorm2d(init_channels, momentum=0.01),
            nn.ReLU(inplace=True) if relu else nn.Identity(),
        )
        self.cheap_operation = nn.Sequential(
            nn.Conv2d(init_channels, new_channels, dw_size, 1, dw_size // 2, groups=init_channels, bias=False),
            nn.BatchNorm2d(new_channels, momentum=0.01),
            nn.ReLU(inplace=True) if relu else nn.Identity(),
        )

    def forward(self, x):
        x1 = self.primary_conv(x)
        x2 = self.cheap_operation(x1)
        return torch.cat([x1, x2], dim=1)[:, : self.oup]


class GhostBottleneck(nn.Module):
    """Expand, squeeze and excite, project; the input is added."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.ghost1 = GhostModule(channels, hidden, relu=True)
        self.se = SqueezeExcite(hidden, 6)
        self.ghost2 = GhostModule(hidden, channels, relu=False)

    def forward(self, x):
        return self.ghost2(self.se(self.ghost1(x))) + x


def channel_shuffle(x, groups):
    b, c, h, w = x.shape
    return x.view(b, groups, c // groups, h, w).transpose(1, 2).reshape(b, c, h, w)


class ShuffleUnit(nn.Module):
    """Grouped 1x1, shuffle, depthwise 3x3, grouped 1x1; stride 2 concatenates the pooled input."""

    def __init__(self, inp, mid, oup, groups, stride):
        super().__init__()
        self.groups, self.stride = groups, stride
        out = oup - inp if stride == 2 else oup
        self.conv1 = nn.Conv2d(inp, mid, 1, groups=groups, bias=False)
        self.bn1 = nn.BatchNorm2d(mid, momentum=0.01)
        self.conv2 = nn.Conv2d(mid, mid, 3, stride, 1, groups=mid, bias=False)
        self.bn2 = nn.BatchNorm2d(mid, momentum=0.01)
        self.conv3 = nn.Conv2d(mid, out, 1, groups=groups, bias=False)
        self.bn3 = nn.BatchNorm2d(out, momentum=0.01)
        self.shortcut = nn.AvgPool2d(3, stride=2, padding=1)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = channel_shuffle(out, self.groups)
        out = self.bn2(self.conv2(out))
        out = self.bn3(self.conv3(out))
        if self.stride == 2:
            return F.relu(torch.cat([self.shortcut(x), out], 1))
        return F.relu(x + out)


class Net(nn.Module):
    def __init__(self, num_classes=7):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8, momentum=0.01),
            HardSwish(),
        )
        self.stage1 = GhostBottleneck(8, 16)
        self.down = ShuffleUnit(8, 8, 24, groups=2, stride=2)
        self.stage2 = GhostBottleneck(24, 25)
        self.stage3 = ShuffleUnit(24, 12, 24, groups=3, stride=1)
        self.conv_head = nn.Conv2d(24, 32, 1, bias=True)
        self.act = HardSwish()
        self.classifier = nn.Linear(32, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.stem(x)
        x = self.stage1(x)
        x = self.down(x)
        x = self.stage2(x)
        x = self.stage3(x)
        x = F.adaptive_avg_pool2d(x, 1)
        x = self.act(self.conv_head(x))
        return self.classifier(x.flatten(1))


def loss(outputs, targets, smoothing=0.1):
    """Cross entropy with label smoothing."""
    logprobs = F.log_softmax(outputs, dim=-1)
    nll = -logprobs.gather(dim=-1, index=targets.unsqueeze(1).long()).squeeze(1)
    smooth = -logprobs.mean(dim=-1)
    return ((1.0 - smoothing) * nll + smoothing * smooth).mean()


def learning_rate(step, base=0.2, warmup=2, total=6):
    """Linear warm-up, then half a cosine; steps are counted from one."""
    if step <= warmup:
        return base * step / warmup
    return 0.5 * base * (1.0 + math.cos(math.pi * (step - warmup) / (total - warmup)))


class ScheduledSGD(torch.optim.SGD):
    """SGD that sets its learning rate before each update."""

    def __init__(self, params, **kwargs):
        super().__init__(params, lr=learning_rate(1), **kwargs)
        self.updates = 0

    def step(self, closure=None):
        self.updates += 1
        for group in self.param_groups:
            group["lr"] = learning_rate(self.updates)
        return super().step(closure)


def optimizer(parameters):
    """Momentum 0.9, weight decay on matrices and kernels only."""
    decay, no_decay = [], []
    for p in parameters:
        (no_decay if p.ndim <= 1 else decay).append(p)
    groups = [{"params": decay, "weight_decay": 0.02}, {"params": no_decay, "weight_decay": 0.0}]
    return ScheduledSGD(groups, momentum=0.9)
