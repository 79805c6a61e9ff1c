"""VICReg with the convolutions' filters as a matrix, one loss over both views, and LARS with groups."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


class Backbone(nn.Cell):
    """The encoder, batch norms in a list, pooling by a depth-wise sum."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, pad_mode="pad", padding=1, has_bias=False)
        self.kernel = Parameter(Tensor(0.1 * np.random.randn(12, 8, 3, 3), ms.float32))
        self.strength = Parameter(Tensor(np.ones((12, 1, 1, 1)), ms.float32))
        self.norms = nn.CellList([nn.BatchNorm2d(8, momentum=0.9), nn.BatchNorm2d(8, momentum=0.99)])
        self.ninth = Tensor(np.full((8, 1, 3, 3), 1 / 9), ms.float32)

    def construct(self, x):
        x = self.norms[0](self.stem(x))
        x = x / (1 + mint.exp(-x))
        x = ops.conv2d(x, self.ninth, stride=2, pad_mode="pad", padding=1, groups=8)
        x = self.norms[1](x)
        filters = self.kernel.reshape(12, 72)
        filters = filters - mint.mean(filters, 1, keepdim=True)
        filters = filters / mint.sqrt(mint.sum(filters * filters, 1, keepdim=True) + 1e-4)
        x = ops.conv2d(x, filters.reshape(12, 8, 3, 3), pad_mode="same")
        x = x * self.strength.reshape(1, 12, 1, 1)
        x = x / (1 + mint.exp(-x))
        h = x.shape[2] // 2
        corners = [x[:, :, :h, :h], x[:, :, :h, h:], x[:, :, h:, :h], x[:, :, h:, h:]]
        return ops.stack([c.mean(axis=(2, 3)) for c in corners], axis=2).reshape(x.shape[0], -1)


class Net(nn.Cell):
    """Projections and classes."""

    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.expand = nn.Dense(48, 24, has_bias=False)
        self.expand_norm = nn.BatchNorm1d(24)
        self.expand_out = nn.Dense(24, 12, has_bias=False)
        self.online = nn.Dense(48, 4)
        self.level = Parameter(Tensor(0.0, ms.float32), requires_grad=False)

    def project(self, x):
        return self.expand_out(ops.relu(self.expand_norm(self.expand(x))))

    def construct(self, a, b):
        views = [self.backbone(x) for x in (a, b)]
        p, q = [self.project(x) for x in views]
        if self.training:
            unit = ops.stop_gradient(views[0])
            unit = unit / mint.sqrt(mint.sum(unit * unit, 1, keepdim=True))
            unit = unit - mint.mean(unit, 0, keepdim=True)
            now = mint.mean(mint.sqrt(mint.sum(unit * unit, 0) / (unit.shape[0] - 1)))
            self.level.set_data(self.level + 0.1 * (now - self.level))
        return p, q, self.online(ops.stop_gradient(views[0]))


def loss(outputs, targets):
    """The three terms of both views at once."""
    z = ops.stack(outputs[:2])
    n, d = z.shape[1:]
    same = mint.mean(mint.square(z[0] - z[1]))
    z = z - mint.mean(z, 1, keepdim=True)
    cov = mint.matmul(z.swapaxes(1, 2), z) / (n - 1)
    eye = Tensor(np.eye(d), ms.float32)
    own = mint.sum(cov * eye, 2)
    spread = mint.mean(ops.relu(1 - mint.sqrt(own + 1e-4)))
    mixed = (mint.sum(mint.square(cov)) - mint.sum(mint.square(own))) / d
    hot = ops.one_hot(targets.astype(ms.int32), 4, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
    logits = outputs[2] - ops.stop_gradient(ops.amax(outputs[2], 1, keepdims=True))
    entropy = mint.log(mint.sum(mint.exp(logits), 1)) - mint.sum(logits * hot, 1)
    return 5 * same + 5 * spread + 2 * mixed + mint.mean(entropy)


class Adaptive(nn.Optimizer):
    """LARS, one small function for each kind of weight."""

    def __init__(self, params):
        super().__init__(0.3, params)
        self.speed = {}
        self.cosine = [(1 + np.cos(np.pi * i / 8)) / 2 for i in range(8)]

    def construct(self, gradients):
        share = float(self.cosine.pop(0))
        for i, (p, g) in enumerate(zip(self.parameters, gradients)):
            small = p.size == p.shape[0]
            rate = share * (0.05 if small else 0.3)
            if not small:
                g = g + 0.01 * p
                g = g * (0.02 * ops.norm(p.reshape(-1)) / ops.norm(g.reshape(-1)))
            self.speed[i] = g + 0.9 * self.speed[i] if i in self.speed else g
            p.set_data(p - rate * self.speed[i])
        return True


def optimizer(parameters):
    return Adaptive(list(parameters))
