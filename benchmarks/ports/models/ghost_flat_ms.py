"""The mobile network in one list of conv-norm layers, called in turn."""

import numpy as np
import mindspore as ms
from mindspore import Tensor, nn, ops

# inputs, outputs, kernel, stride, groups
LAYERS = [
    (3, 8, 3, 2, 1),
    (8, 8, 1, 1, 1),
    (8, 8, 3, 1, 8),
    (16, 4, 1, 1, 1),
    (4, 4, 3, 1, 4),
    (8, 8, 1, 1, 2),
    (8, 8, 3, 2, 8),
    (8, 16, 1, 1, 2),
    (24, 13, 1, 1, 1),
    (13, 13, 3, 1, 13),
    (25, 12, 1, 1, 1),
    (12, 12, 3, 1, 12),
    (24, 12, 1, 1, 3),
    (12, 12, 3, 1, 12),
    (12, 24, 1, 1, 3),
]


def shuffle(x, groups):
    """Interleaves the channels of the groups."""
    parts = ops.split(x, x.shape[1] // groups, axis=1)
    return ops.flatten(ops.stack(parts, axis=2), start_dim=1, end_dim=2)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        convs, norms = [], []
        for cin, cout, k, stride, groups in LAYERS:
            if groups == cin:
                pads = [nn.Pad(((0, 0), (0, 0), (1, 1), (1, 1)))]
                convs.append(nn.SequentialCell(pads + [nn.Conv2d(cin, cout, k, stride, "valid", group=groups)]))
            else:
                convs.append(nn.Conv2d(cin, cout, k, stride, "pad", k // 2, group=groups))
            norms.append(nn.BatchNorm2d(cout, eps=1e-5, momentum=1 - 0.01))
        self.convs, self.norms = nn.CellList(convs), nn.CellList(norms)
        self.gates = nn.CellList([nn.Conv2d(a, b, 1, has_bias=True) for a, b in ((16, 6), (6, 16), (25, 6), (6, 25))])
        self.act = nn.HSwish()
        self.gate_act = nn.HSigmoid()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.top = nn.SequentialCell(nn.Conv2d(24, 32, 1, has_bias=True), nn.HSwish(), nn.Flatten(), nn.Dense(32, 7))
        self.average = Tensor(np.full((8, 1, 3, 3), 1 / 9), ms.float32)

    def cn(self, i, x):
        return self.norms[i](self.convs[i](x))

    def bottleneck(self, i, j, x):
        a = ops.relu(self.cn(i, x))
        hidden = ops.cat([a, ops.relu(self.cn(i + 1, a))], 1)
        if hidden.shape[1] > 25:
            hidden = hidden.narrow(1, 0, 25)
        gate = self.gates[j + 1](ops.relu(self.gates[j](self.pool(hidden))))
        a = self.cn(i + 2, self.gate_act(gate) * hidden)
        return x + ops.cat([a, self.cn(i + 3, a)], 1)

    def branch(self, i, x, groups):
        y = shuffle(ops.relu(self.cn(i, x)), groups)
        return self.cn(i + 2, self.cn(i + 1, y))

    def construct(self, x):
        x = self.act(self.cn(0, x))
        x = self.bottleneck(1, 0, x)
        pooled = ops.conv2d(x, self.average, stride=2, pad_mode="pad", padding=1, groups=8)
        x = ops.relu(ops.cat([pooled, self.branch(5, x, 2)], 1))
        x = self.bottleneck(8, 2, x)
        x = ops.relu(self.branch(12, x, 3) + x)
        return self.top(self.pool(x))


def loss(outputs, targets):
    return ops.cross_entropy(outputs, targets.astype(ms.int32), label_smoothing=0.1)


def optimizer(parameters):
    """Warm-up over two updates, then a cosine to zero."""
    base = 0.2
    rates = [base / 2] + nn.cosine_decay_lr(0.0, base, 5, 1, 4)
    parameters = list(parameters)
    plain = [p for p in parameters if p.ndim == 1]
    rest = [p for p in parameters if p.ndim != 1]
    groups = [{"params": plain}, {"params": rest, "weight_decay": 0.02}, {"order_params": parameters}]
    return nn.SGD(groups, learning_rate=rates, momentum=0.9)
