"""VICReg on a small encoder with a weight-standardised layer, an online classifier, and LARS."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class StandardConv(nn.Cell):
    """A convolution whose filters have mean zero and deviation one, with a gain."""

    def __init__(self, inputs, outputs, size, padding):
        super().__init__()
        self.padding = padding
        self.fan = inputs * size * size
        weight = np.random.randn(outputs, inputs, size, size) / math.sqrt(self.fan)
        self.weight = Parameter(Tensor(weight, ms.float32))
        self.gain = Parameter(Tensor(np.ones((outputs, 1, 1, 1)), ms.float32))

    def construct(self, x):
        mean = self.weight.mean(axis=(1, 2, 3), keep_dims=True)
        var = self.weight.var(axis=(1, 2, 3), ddof=0, keepdims=True)
        weight = (self.weight - mean) / ops.sqrt(var * self.fan + 1e-4)
        return ops.conv2d(x, weight * self.gain, pad_mode="pad", padding=self.padding)


class Encoder(nn.Cell):
    """Two convolutions with batch norms and average pooling between."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, pad_mode="pad", padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.pool = nn.AvgPool2d(3, stride=2, pad_mode="pad", padding=1)
        self.bn2 = nn.BatchNorm2d(8, momentum=0.99)
        self.conv2 = StandardConv(8, 12, 3, padding=1)

    def construct(self, x):
        x = self.pool(ops.silu(self.bn1(self.conv1(x))))
        x = ops.silu(self.conv2(self.bn2(x)))
        b, c, h, w = x.shape
        x = x.reshape(b, c, 2, h // 2, 2, w // 2).mean(axis=(3, 5))
        return x.reshape(b, c * 4)


class Net(nn.Cell):
    """Outputs both views' projections and the first one's classes; follows the features' spread (collapse)."""

    def __init__(self, classes=4):
        super().__init__()
        self.encoder = Encoder()
        self.projector = nn.SequentialCell(
            nn.Dense(48, 24, has_bias=False),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Dense(24, 12, has_bias=False),
        )
        self.probe = nn.Dense(48, classes)
        self.spread = Parameter(Tensor(0.14, ms.float32), requires_grad=False)

    def construct(self, first, second):
        one = self.encoder(first)
        two = self.encoder(second)
        if self.training:
            rows = ops.stop_gradient(one)
            rows = rows / ops.norm(rows, dim=1, keepdim=True)
            level = rows.std(axis=0, ddof=1).mean()
            ops.assign(self.spread, 0.9 * self.spread + 0.1 * level)
        return self.projector(one), self.projector(two), self.probe(ops.stop_gradient(one))


def loss(outputs, targets):
    """Invariance, variance and covariance, and the classifier's cross-entropy."""
    one, two, classes = outputs
    total = 5 * ops.square(one - two).mean()
    for z in (one, two):
        n, d = z.shape
        std = ops.sqrt(z.var(axis=0, ddof=1) + 1e-4)
        total = total + 5 * ops.relu(1 - std).mean() / 2
        centred = z - z.mean(axis=0)
        covariance = ops.matmul(centred.T, centred) / (n - 1)
        beside = covariance * (1 - ops.eye(d, d, ms.float32))
        total = total + 2 * ops.square(beside).sum() / d
    return total + ops.cross_entropy(classes, targets.astype(ms.int32))


class LARS(nn.Optimizer):
    """Momentum with a rate for each weight by its norm; biases and norms go without it. Cosine schedule."""

    def __init__(self, params, adapt, rates, momentum=0.9, decay=0.01, eta=0.02, total=8):
        super().__init__(0.3, params)
        self.adapt = adapt
        self.rates = rates
        self.momentum = momentum
        self.decay = decay
        self.eta = eta
        self.total = total
        self.done = 0
        self.buffers = self.parameters.clone(prefix="momentum", init="zeros")

    def construct(self, gradients):
        factor = 0.5 * (1 + math.cos(math.pi * self.done / self.total))
        for i, p in enumerate(self.parameters):
            update = gradients[i]
            if self.adapt[i]:
                update = update + self.decay * p
                weight = ops.sqrt(ops.square(p).sum())
                length = ops.sqrt(ops.square(update).sum())
                if weight > 0 and length > 0:
                    update = update * (self.eta * weight / length)
            ops.assign(self.buffers[i], self.momentum * self.buffers[i] + update)
            ops.assign(p, p - self.rates[i] * factor * self.buffers[i])
        self.done += 1
        return True


def optimizer(parameters):
    """Weights adapt; biases, gains and norms have a smaller rate."""
    parameters = list(parameters)
    adapt = [sum(n > 1 for n in p.shape) > 1 for p in parameters]
    rates = [0.3 if a else 0.05 for a in adapt]
    return LARS(parameters, adapt, rates)
