"""DeepLab: atrous pyramid with image pooling, a decoder with fine features, an auxiliary head."""

import mindspore as ms
from mindspore import Parameter, nn, ops


class Norm(nn.Cell):
    """Batch norm written out, so that it can be synchronized."""

    def __init__(self, c, eps=1e-5, momentum=0.1):
        super().__init__()
        self.gamma = Parameter(ops.ones(c))
        self.beta = Parameter(ops.zeros(c))
        self.moving_mean = Parameter(ops.zeros(c), requires_grad=False)
        self.moving_variance = Parameter(ops.ones(c), requires_grad=False)
        self.eps, self.momentum = eps, momentum

    def remember(self, mean, var, n):
        share = self.momentum
        mean, var = ops.stop_gradient(mean), ops.stop_gradient(var)
        ops.assign(self.moving_mean, (1 - share) * self.moving_mean + share * mean)
        var = var * n / (n - 1)
        ops.assign(self.moving_variance, (1 - share) * self.moving_variance + share * var)

    def construct(self, x):
        c = x.shape[1]
        if self.training:
            mean = x.mean(axis=(0, 2, 3))
            var = ops.square(x - mean.reshape(1, c, 1, 1)).mean(axis=(0, 2, 3))
            self.remember(mean, var, x.size // c)
        else:
            mean, var = self.moving_mean, self.moving_variance
        scale = self.gamma * ops.rsqrt(var + self.eps)
        shift = self.beta - mean * scale
        return x * scale.reshape(1, c, 1, 1) + shift.reshape(1, c, 1, 1)


class Unit(nn.Cell):
    """Convolution, norm, ReLU."""

    def __init__(self, cin, cout, kernel=3, stride=1, rate=1):
        super().__init__()
        self.conv = nn.Conv2d(
            cin,
            cout,
            kernel,
            stride=stride,
            pad_mode="pad",
            padding=rate * (kernel - 1) // 2,
            dilation=rate,
        )
        self.norm = Norm(cout)

    def construct(self, x):
        return ops.relu(self.norm(self.conv(x)))


class Pyramid(nn.Cell):
    """Pixels, three rates, and the whole image, side by side."""

    def __init__(self, cin, c, rates=(1, 2, 3)):
        super().__init__()
        self.point = Unit(cin, c, kernel=1)
        self.atrous = nn.CellList([Unit(cin, c, rate=rate) for rate in rates])
        self.image = nn.Conv2d(cin, c, 1, has_bias=True)
        self.project = Unit(c * (len(rates) + 2), c, kernel=1)

    def construct(self, x):
        pooled = x.mean(axis=(2, 3), keep_dims=True)
        whole = ops.relu(self.image(pooled))
        whole = ops.broadcast_to(whole, whole.shape[:2] + x.shape[2:])
        parts = [self.point(x)] + [branch(x) for branch in self.atrous] + [whole]
        return self.project(ops.cat(parts, axis=1))


def resize(x, size):
    return ops.interpolate(x, size=size, mode="bilinear", align_corners=False)


class Net(nn.Cell):
    """Scores of the classes at all pixels, from the main and the auxiliary head."""

    def __init__(self, classes=5):
        super().__init__()
        self.stem = Unit(3, 8, stride=2)
        self.middle = Unit(8, 12, stride=2)
        self.deep = Unit(12, 12, rate=2)
        self.deep_out = nn.Conv2d(12, 12, 1)
        self.pyramid = Pyramid(12, 8)
        self.fine = nn.Conv2d(8, 4, 1, has_bias=True)
        self.decode = Unit(12, 8)
        self.classify = nn.Conv2d(8, classes, 1, has_bias=True)
        self.auxiliary = nn.Conv2d(12, classes, 1, has_bias=True)

    def construct(self, x):
        size = x.shape[2:]
        fine = self.stem(x)
        middle = self.middle(fine)
        deep = ops.relu(middle + self.deep_out(self.deep(middle)))
        h = resize(self.pyramid(deep), fine.shape[2:])
        h = self.decode(ops.cat([h, ops.relu(self.fine(fine))], axis=1))
        main = resize(self.classify(h), size)
        side = resize(self.auxiliary(middle), size)
        return main, side


def loss(outputs, targets):
    """Label 0 means unlabelled; the classes start at 1."""
    main, side = outputs
    labels = targets.astype(ms.int32) - 1
    labels = labels.masked_fill(labels < 0, 255)
    main = ops.cross_entropy(main, labels, ignore_index=255)
    side = ops.cross_entropy(side, labels, ignore_index=255)
    return main + 0.4 * side


class SGD(nn.Cell):
    """Nesterov's momentum with a polynomial schedule."""

    def __init__(self, parameters, rates, decays, total=8, power=0.9, momentum=0.9):
        super().__init__()
        self.weights = ms.ParameterTuple(parameters)
        self.buffers = self.weights.clone("momentum", init="zeros")
        self.rates, self.decays = rates, decays
        self.total, self.power, self.momentum = total, power, momentum
        self.count = 0

    def construct(self, gradients):
        factor = (1 - self.count / self.total) ** self.power
        self.count += 1
        for i, (p, v, g) in enumerate(zip(self.weights, self.buffers, gradients)):
            lr = self.rates[i] * factor
            g = g + self.decays[i] * p
            ops.assign(v, self.momentum * v + g)
            step = g + self.momentum * v
            ops.assign(p, p - lr * step)
        return gradients


def optimizer(parameters):
    """Biases and norms learn twice as fast and do not decay."""
    parameters = list(parameters)
    rates = [0.02 if p.ndim > 1 else 0.04 for p in parameters]
    decays = [0.01 if p.ndim > 1 else 0.0 for p in parameters]
    return SGD(parameters, rates, decays)
