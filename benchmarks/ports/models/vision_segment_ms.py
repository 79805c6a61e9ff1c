"""A segmentation head with instance norms, dilated branches and a dice loss."""

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
import numpy as np


class InstanceNorm2d(nn.Cell):
    """nn.InstanceNorm2d has no CPU kernel."""

    def __init__(self, channels, eps=1e-3):
        super().__init__()
        self.gamma = Parameter(Tensor(np.ones(channels), ms.float32), name="gamma")
        self.beta = Parameter(Tensor(np.zeros(channels), ms.float32), name="beta")
        self.eps = eps

    def construct(self, x):
        mean = x.mean((2, 3), keep_dims=True)
        var = ops.square(x - mean).mean((2, 3), keep_dims=True)
        x = (x - mean) / ops.sqrt(var + self.eps)
        return x * self.gamma.reshape(1, -1, 1, 1) + self.beta.reshape(1, -1, 1, 1)


class ConvNormLrelu(nn.Cell):
    def __init__(self, cin, cout, kernel_size=3, dilation=1):
        super().__init__()
        padding = dilation * (kernel_size - 1) // 2
        self.conv = nn.Conv2d(
            cin,
            cout,
            kernel_size,
            pad_mode="pad",
            padding=padding,
            dilation=dilation,
            has_bias=True,
        )
        self.norm = InstanceNorm2d(cout)
        self.act = nn.LeakyReLU(alpha=0.01)

    def construct(self, x):
        return self.act(self.norm(self.conv(x)))


class Net(nn.Cell):
    def __init__(self, classes=3):
        super().__init__()
        self.stem = ConvNormLrelu(2, 6)
        self.rates = nn.CellList([ConvNormLrelu(6, 4, dilation=d) for d in (1, 2, 3)])
        self.pool_conv = nn.Conv2d(6, 4, 1, has_bias=True)
        self.fuse = ConvNormLrelu(16, 8, 1)
        self.up = nn.PixelShuffle(2)
        self.head = nn.Conv2d(2, classes, 1, has_bias=True)

    def construct(self, x):
        x = ops.avg_pool2d(self.stem(x), 2, 2)
        branches = [branch(x) for branch in self.rates]
        pooled = ops.relu(self.pool_conv(x.mean((2, 3), keep_dims=True)))
        branches.append(ops.broadcast_to(pooled, (-1, -1, x.shape[2], x.shape[3])))
        y = self.fuse(ops.cat(branches, axis=1))
        y = self.up(y)
        return ops.softmax(self.head(y), axis=1)


def loss(outputs, targets):
    """Soft dice of the foreground classes plus the negative log-likelihood."""
    onehot = nn.OneHot(axis=1, depth=outputs.shape[1])(targets)
    dims = (2, 3)
    inter = (outputs * onehot).sum(dims)
    total = outputs.sum(dims) + onehot.sum(dims)
    dice = (2 * inter + 1.0) / (total + 1.0)
    nll = -(ops.log(outputs.clamp(min=1e-6)) * onehot).sum(1).mean()
    return 1 - dice[:, 1:].mean() + 0.5 * nll
