"""The siamese net with both images in one batch and an own Nesterov optimizer."""

from mindspore import ParameterTuple, nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 6, 5, 1, "valid", has_bias=True)
        self.c2 = nn.Conv2d(6, 8, 3, 1, "valid", has_bias=True)
        self.act = nn.PReLU(6)
        self.fc1 = nn.Dense(32, 16, activation="tanh")
        self.fc2 = nn.Dense(16, 6)
        self.normalize = ops.L2Normalize(axis=1)

    def construct(self, x1, x2):
        x = ops.concat((x1, x2), axis=0)
        x = nn.MaxPool2d(2, 2)(self.act(self.c1(x)))
        x = ops.sigmoid(self.c2(x)).reshape((x.shape[0], -1))
        z = self.normalize(self.fc2(self.fc1(x)))
        return ops.chunk(z, 2, axis=0)


def loss(outputs, targets):
    a, b = outputs
    squared = ((a - b) ** 2).sum(-1) + 1e-6
    gap = ops.clamp(1.0 - squared.sqrt(), min=0.0)
    return ops.where(targets > 0, squared, gap * gap).mean() / 2


class Nesterov(nn.Optimizer):
    def __init__(self, params):
        super().__init__(0.05, params)
        self.velocity = ParameterTuple(self.parameters).clone(prefix="velocity", init="zeros")

    def construct(self, grads):
        for p, g, v in zip(self.parameters, grads, self.velocity):
            slow = not p.name.startswith("fc")
            lr = 0.05 if slow else 0.5
            if slow:
                g = g + 0.02 * p
            new = 0.9 * v + g
            ops.assign(v, new)
            ops.assign(p, p - lr * (g + 0.9 * new))
        return True


def optimizer(parameters):
    return Nesterov(parameters)
