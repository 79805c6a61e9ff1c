"""A small mobile network of ghost bottlenecks and shuffle units."""

import math

import mindspore as ms
from mindspore import nn, ops
from mindspore.common.initializer import HeNormal


def conv(inp, out, kernel, stride=1, group=1, bias=False):
    init = HeNormal(mode="fan_out", nonlinearity="relu")
    return nn.Conv2d(
        inp, out, kernel, stride, pad_mode="pad", padding=kernel // 2, group=group, has_bias=bias, weight_init=init
    )


def norm(channels):
    return nn.BatchNorm2d(channels, momentum=0.99)


class HardSwish(nn.Cell):
    def construct(self, x):
        return x * ops.relu6(x + 3.0) / 6.0


class SqueezeExcite(nn.Cell):
    """Channel attention with a hard sigmoid as gate."""

    def __init__(self, channels, reduced):
        super().__init__()
        self.conv_reduce = conv(channels, reduced, 1, bias=True)
        self.act1 = nn.ReLU()
        self.conv_expand = conv(reduced, channels, 1, bias=True)

    def construct(self, x):
        s = x.mean(axis=(2, 3), keep_dims=True)
        s = self.conv_expand(self.act1(self.conv_reduce(s)))
        return x * (ops.relu6(s + 3.0) / 6.0)


class GhostModule(nn.Cell):
    """Half of the features by a convolution, the others from those by a cheap depthwise one."""

    def __init__(self, inp, oup, kernel_size=1, ratio=2, dw_size=3, relu=True):
        super().__init__()
        self.oup = oup
        init_channels = math.ceil(oup / ratio)
        new_channels = init_channels * (ratio - 1)
        self.primary_conv = nn.SequentialCell(
            conv(inp, init_channels, kernel_size),
            norm(init_channels),
            nn.ReLU() if relu else nn.Identity(),
        )
        self.cheap_operation = nn.SequentialCell(
            conv(init_channels, new_channels, dw_size, group=init_channels),
            norm(new_channels),
            nn.ReLU() if relu else nn.Identity(),
        )

    def construct(self, x):
        x1 = self.primary_conv(x)
        x2 = self.cheap_operation(x1)
        return ops.concat((x1, x2), axis=1)[:, : self.oup]


class GhostBottleneck(nn.Cell):
    """Expand, squeeze and excite, project; the input is added."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.ghost1 = GhostModule(channels, hidden, relu=True)
        self.se = SqueezeExcite(hidden, 6)
        self.ghost2 = GhostModule(hidden, channels, relu=False)

    def construct(self, x):
        return self.ghost2(self.se(self.ghost1(x))) + x


def channel_shuffle(x, groups):
    b, c, h, w = x.shape
    return x.reshape(b, groups, c // groups, h, w).swapaxes(1, 2).reshape(b, c, h, w)


class ShuffleUnit(nn.Cell):
    """Grouped 1x1, shuffle, depthwise 3x3, grouped 1x1; stride 2 concatenates the pooled input."""

    def __init__(self, inp, mid, oup, groups, stride):
        super().__init__()
        self.groups, self.stride = groups, stride
        out = oup - inp if stride == 2 else oup
        self.conv1 = conv(inp, mid, 1, group=groups)
        self.bn1 = norm(mid)
        self.conv2 = conv(mid, mid, 3, stride, group=mid)
        self.bn2 = norm(mid)
        self.conv3 = conv(mid, out, 1, group=groups)
        self.bn3 = norm(out)
        self.shortcut = nn.AvgPool2d(3, stride=2, pad_mode="pad", padding=1)

    def construct(self, x):
        out = ops.relu(self.bn1(self.conv1(x)))
        out = channel_shuffle(out, self.groups)
        out = self.bn2(self.conv2(out))
        out = self.bn3(self.conv3(out))
        if self.stride == 2:
            return ops.relu(ops.concat((self.shortcut(x), out), axis=1))
        return ops.relu(x + out)


class Net(nn.Cell):
    def __init__(self, num_classes=7):
        super().__init__()
        self.stem = nn.SequentialCell(conv(3, 8, 3, 2), norm(8), HardSwish())
        self.stage1 = GhostBottleneck(8, 16)
        self.down = ShuffleUnit(8, 8, 24, groups=2, stride=2)
        self.stage2 = GhostBottleneck(24, 25)
        self.stage3 = ShuffleUnit(24, 12, 24, groups=3, stride=1)
        self.conv_head = conv(24, 32, 1, bias=True)
        self.act = HardSwish()
        self.classifier = nn.Dense(32, num_classes)

    def construct(self, x):
        x = self.stem(x)
        x = self.stage1(x)
        x = self.down(x)
        x = self.stage2(x)
        x = self.stage3(x)
        x = x.mean(axis=(2, 3), keep_dims=True)
        x = self.act(self.conv_head(x))
        return self.classifier(x.flatten(start_dim=1))


def loss(outputs, targets, smoothing=0.1):
    """Cross entropy with label smoothing."""
    logprobs = ops.log_softmax(outputs, axis=-1)
    nll = -ops.gather_elements(logprobs, 1, targets.expand_dims(1).astype(ms.int32)).squeeze(1)
    smooth = -logprobs.mean(axis=-1)
    return ((1.0 - smoothing) * nll + smoothing * smooth).mean()


def learning_rate(step, base=0.2, warmup=2, total=6):
    """Linear warm-up, then half a cosine; steps are counted from one."""
    if step <= warmup:
        return base * step / warmup
    return 0.5 * base * (1.0 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def optimizer(parameters):
    """Momentum 0.9, weight decay on matrices and kernels only."""
    parameters = list(parameters)
    decay = [p for p in parameters if p.ndim > 1]
    no_decay = [p for p in parameters if p.ndim <= 1]
    groups = [
        {"params": decay, "weight_decay": 0.02},
        {"params": no_decay, "weight_decay": 0.0},
        {"order_params": parameters},
    ]
    rates = [learning_rate(step) for step in range(1, 7)]
    return nn.Momentum(groups, learning_rate=rates, momentum=0.9)
