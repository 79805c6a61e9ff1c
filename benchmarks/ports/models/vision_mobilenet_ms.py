"""MobileNetV3-like: inverted residuals with squeeze-and-excite and hard-swish."""

import mindspore as ms
from mindspore import nn, ops


def hard_sigmoid(x):
    return ops.relu6(x + 3.0) / 6.0


def hard_swish(x):
    return x * ops.relu6(x + 3.0) / 6.0


class ConvUnit(nn.Cell):
    def __init__(self, cin, cout, k, stride=1, group=1, act=True):
        super().__init__()
        self.conv = nn.Conv2d(
            cin, cout, k, stride, pad_mode="pad", padding=(k - 1) // 2, group=group
        )
        self.bn = nn.BatchNorm2d(cout, eps=0.001, momentum=0.99)
        self.act = act

    def construct(self, x):
        x = self.bn(self.conv(x))
        return hard_swish(x) if self.act else x


class SEUnit(nn.Cell):
    def __init__(self, channels, squeeze):
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeeze, 1, has_bias=True)
        self.restore = nn.Conv2d(squeeze, channels, 1, has_bias=True)

    def construct(self, x):
        s = x.mean((2, 3), keep_dims=True)
        s = ops.relu(self.reduce(s))
        return hard_sigmoid(self.restore(s))


class InvertedResidual(nn.Cell):
    def __init__(self, cin, hidden, cout, k, stride):
        super().__init__()
        self.use_skip = stride == 1 and cin == cout
        self.pw = ConvUnit(cin, hidden, 1)
        self.dw = ConvUnit(hidden, hidden, k, stride, group=hidden)
        self.se = SEUnit(hidden, 6)
        self.pw_linear = ConvUnit(hidden, cout, 1, act=False)

    def construct(self, x):
        e = self.pw(x)
        d = self.dw(e)
        y = d * self.se(d)
        y = self.pw_linear(y)
        if self.use_skip:
            y = y + x
        return y


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = ConvUnit(3, 8, 3, 2)
        self.stage1 = InvertedResidual(8, 16, 8, 3, 1)
        self.stage2 = InvertedResidual(8, 20, 12, 5, 2)
        self.stage3 = InvertedResidual(12, 24, 12, 5, 1)
        self.fc = nn.Dense(12, 20)
        self.head = nn.Dense(20, 5)

    def construct(self, x):
        x = self.stem(x.astype(ms.float32))
        x = self.stage3(self.stage2(self.stage1(x)))
        x = self.fc(x.mean((2, 3)))
        return self.head(hard_swish(x))
