"""A small EfficientNet; the norm of its stem keeps its statistics."""

from mindspore import nn, ops


def frozen_norm(channels):
    return nn.BatchNorm2d(channels, eps=0.001, use_batch_statistics=False)


def norm(channels):
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.99)


def pointwise(cin, cout, bias=False):
    return nn.Conv2d(cin, cout, 1, has_bias=bias)


class SqueezeExcite(nn.Cell):
    """A gate for each channel from the mean over the image."""

    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce = pointwise(channels, reduced, bias=True)
        self.expand = pointwise(reduced, channels, bias=True)

    def construct(self, x):
        s = x.mean(axis=(2, 3), keep_dims=True)
        s = ops.silu(self.reduce(s))
        return ops.sigmoid(self.expand(s))


class MBConv(nn.Cell):
    """Expand, depthwise convolution, squeeze-excite, project without activation."""

    def __init__(self, cin, cout, ratio, kernel, stride):
        super().__init__()
        hidden = cin * ratio
        self.ratio = ratio
        if ratio > 1:
            self.expand = nn.SequentialCell(pointwise(cin, hidden), norm(hidden), nn.SiLU())
        self.depthwise = nn.SequentialCell(
            nn.Conv2d(
                hidden,
                hidden,
                kernel,
                stride=stride,
                pad_mode="pad",
                padding=kernel // 2,
                group=hidden,
            ),
            norm(hidden),
            nn.SiLU(),
        )
        self.se = SqueezeExcite(hidden, max(2, cin // 4))
        self.project = nn.SequentialCell(pointwise(hidden, cout), norm(cout))
        self.residual = stride == 1 and cin == cout

    def construct(self, x):
        e = self.expand(x) if self.ratio > 1 else x
        h = self.depthwise(e)
        gate = self.se(h)
        h = self.project(h * gate)
        return x + h if self.residual else h


class Net(nn.Cell):
    """Scores of five classes."""

    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, pad_mode="pad", padding=1)
        self.stem_norm = frozen_norm(8)
        self.blocks = nn.SequentialCell(
            MBConv(8, 8, 1, 3, 1), MBConv(8, 8, 4, 5, 1), MBConv(8, 12, 1, 3, 2)
        )
        self.head = pointwise(12, 24, bias=True)
        self.classifier = nn.Dense(24, classes)

    def construct(self, x):
        h = self.stem(x)
        h = ops.silu(self.stem_norm(h))
        h = self.blocks(h)
        h = ops.silu(self.head(h))
        return self.classifier(h.mean(axis=(2, 3)))
