"""Graph convolutions on a dense adjacency, with an own batch norm between."""

import mindspore as ms
import mindspore.numpy as mnp
from mindspore import Parameter, nn, ops
from mindspore.common.initializer import Uniform, XavierUniform, initializer


class BatchNorm(nn.Cell):
    """Batch norm over the nodes with moving averages."""

    def __init__(self, n, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.gamma = Parameter(ops.ones(n, ms.float32), name="gamma")
        self.beta = Parameter(ops.zeros(n, ms.float32), name="beta")
        self.moving_mean = Parameter(ops.zeros(n, ms.float32), "moving_mean", requires_grad=False)
        self.moving_var = Parameter(ops.ones(n, ms.float32), "moving_var", requires_grad=False)

    def construct(self, x):
        if self.training:
            mean = x.mean(axis=0)
            var = ops.square(x - mean).mean(axis=0)
            n = x.shape[0]
            m = self.momentum
            unbiased = var * n / (n - 1)
            ops.assign(self.moving_mean, (1 - m) * self.moving_mean + m * mean)
            ops.assign(self.moving_var, (1 - m) * self.moving_var + m * unbiased)
        else:
            mean, var = self.moving_mean, self.moving_var
        return (x - mean) / ops.sqrt(var + self.eps) * self.gamma + self.beta


class GraphConvolution(nn.Cell):
    """X to A X W + b."""

    def __init__(self, inputs, outputs, has_bias=True):
        super().__init__()
        self.weight = Parameter(initializer(XavierUniform(), [inputs, outputs], ms.float32))
        self.has_bias = has_bias
        if has_bias:
            self.bias = Parameter(initializer(Uniform(0.3), [outputs], ms.float32))

    def construct(self, x, a):
        x = ops.matmul(a, ops.matmul(x, self.weight))
        if self.has_bias:
            x = x + self.bias
        return x


def normalise(adjacency):
    """Symmetric adjacency with self-loops, D^-1/2 A D^-1/2."""
    n = adjacency.shape[0]
    eye = mnp.eye(n)
    a = ((adjacency + adjacency.T) > 0).astype(ms.float32)
    a = a * (1 - eye)
    a = a + eye
    d = ops.pow(a.sum(axis=1), -0.5)
    return d.reshape(n, 1) * a * d.reshape(1, n)


class Net(nn.Cell):
    """Two layers for the nodes' classes, a skip connection over the second."""

    def __init__(self, features=6, hidden=12, classes=4):
        super().__init__()
        self.conv1 = GraphConvolution(features, hidden, has_bias=False)
        self.bn = BatchNorm(hidden)
        self.conv2 = GraphConvolution(hidden, hidden)
        self.fc = nn.Dense(hidden, classes)

    def construct(self, x, adjacency):
        a = normalise(adjacency)
        h = ops.relu(self.bn(self.conv1(x, a)))
        h = h + ops.relu(self.conv2(h, a))
        return self.fc(h)
