"""The small ResNet as a model zoo writes it: ConvNorm cells, an own momentum optimizer."""

from mindspore import nn, ops


class ConvNorm(nn.Cell):
    def __init__(self, cin, cout, k, stride=1, act=True):
        super().__init__()
        pad = (k - 1) // 2
        layers = [
            nn.Conv2d(cin, cout, k, stride, pad_mode="pad", padding=pad),
            nn.BatchNorm2d(cout, momentum=0.9),
        ]
        if act:
            layers.append(nn.ReLU())
        self.features = nn.SequentialCell(layers)

    def construct(self, x):
        return self.features(x)


class Residual(nn.Cell):
    def __init__(self, cin, mid, stride=1, project=False):
        super().__init__()
        self.body = nn.SequentialCell(
            ConvNorm(cin, mid, 1),
            ConvNorm(mid, mid, 3, stride),
            ConvNorm(mid, 2 * mid, 1, act=False),
        )
        self.project = ConvNorm(cin, 2 * mid, 1, stride, act=False) if project else None
        self.add = ops.Add()

    def construct(self, x):
        shortcut = x if self.project is None else self.project(x)
        return ops.relu(self.add(self.body(x), shortcut))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = ConvNorm(3, 8, 3)
        self.blocks = nn.CellList(
            [Residual(8, 6, project=True), Residual(12, 6), Residual(12, 8, 2, project=True)]
        )
        self.head = nn.Dense(16, 5)

    def construct(self, x):
        x = ops.max_pool2d(self.stem(x), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(ops.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1))


class MomentumSGD(nn.Optimizer):
    """SGD with momentum; decays whatever has more than one axis."""

    def __init__(self, params, lr, momentum, weight_decay):
        super().__init__(lr, params)
        self.mu = momentum
        self.wd = weight_decay
        self.buffers = self.parameters.clone(prefix="momentum", init="zeros")

    def construct(self, gradients):
        lr = self.get_lr()
        for p, g, buf in zip(self.parameters, gradients, self.buffers):
            if p.ndim > 1:
                g = g + self.wd * p
            buf_new = self.mu * buf + g
            ops.assign(buf, buf_new)
            ops.assign(p, ops.cast(p - lr * buf_new, p.dtype))
        return True


def optimizer(parameters):
    return MomentumSGD(parameters, 0.05, 0.9, 0.1)
