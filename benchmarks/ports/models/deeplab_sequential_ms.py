"""DeepLab from sequences, MindSpore's batch norm and SGD with groups."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops


def piece(cin, cout, k, **more):
    conv = nn.Conv2d(cin, cout, k, has_bias=False, **more)
    return nn.SequentialCell(conv, nn.BatchNorm2d(cout, eps=1e-5, momentum=0.9), nn.ReLU())


def spread(n, m):
    """The matrix of bilinear enlarging from n to m pixels."""
    table = np.zeros((m, n))
    for i in range(m):
        at = min(max((i + 0.5) * n / m - 0.5, 0), n - 1)
        low = int(at)
        table[i, low] += 1 - (at - low)
        table[i, min(low + 1, n - 1)] += at - low
    return Tensor(table, ms.float32)


def enlarge(x, table):
    return mint.matmul(mint.matmul(table, x), mint.permute(table, (1, 0)))


class Net(nn.Cell):
    def __init__(self, classes=5):
        super().__init__()
        self.layer1 = piece(3, 8, 3, stride=2, pad_mode="pad", padding=1)
        self.layer2 = piece(8, 12, 3, stride=2, pad_mode="pad", padding=1)
        branch = piece(12, 12, 3, dilation=2, pad_mode="same")
        self.layer3 = nn.SequentialCell(branch, nn.Conv2d(12, 12, 1))
        self.aspp = nn.CellList(
            [piece(12, 8, 1)]
            + [piece(12, 8, 3, dilation=r, pad_mode="pad", padding=r) for r in (1, 2, 3)]
        )
        self.global_conv = nn.Conv2d(12, 8, 1, has_bias=True)
        self.merge = piece(40, 8, 1)
        self.skip = nn.SequentialCell(nn.Conv2d(8, 4, 1, has_bias=True), nn.ReLU())
        self.refine = piece(12, 8, 3, pad_mode="same")
        self.head = nn.Conv2d(8, classes, 1, has_bias=True)
        self.aux_head = nn.Conv2d(12, classes, 1, has_bias=True)
        self.from4, self.from8, self.half = spread(4, 16), spread(8, 16), spread(4, 8)

    def construct(self, x):
        x1 = self.layer1(x)
        x2 = self.layer2(x1)
        x3 = mint.nn.functional.relu(x2 + self.layer3(x2))
        views = [cell(x3) for cell in self.aspp]
        mean = ops.adaptive_avg_pool2d(x3, 1)
        mean = mint.nn.functional.relu(self.global_conv(mean))
        views.append(mint.tile(mean, (1, 1, 4, 4)))
        y = enlarge(self.merge(mint.cat(views, dim=1)), self.half)
        y = self.refine(mint.cat([y, self.skip(x1)], dim=1))
        return enlarge(self.head(y), self.from8), enlarge(self.aux_head(x2), self.from4)


def loss(outputs, targets):
    """The mean negative logarithm over the labelled pixels, both heads at once."""
    labels = targets[:, None].astype(ms.int32)
    known = (labels > 0).astype(ms.float32)
    place = mint.clamp(labels - 1, min=0)
    total = 0
    for scores, weight in zip(outputs, (1.0, 0.4)):
        log = ops.log_softmax(scores, axis=1)
        total = total - weight * mint.sum(ops.gather_elements(log, 1, place) * known)
    return total / mint.sum(known)


def optimizer(parameters):
    """The rates of all steps stand in lists, as SGD with groups wants them."""
    parameters = list(parameters)
    rates = [0.02 * (1 - k / 8) ** 0.9 for k in range(8)]
    groups = [
        {
            "params": [p for p in parameters if not p.name.endswith(("gamma", "beta", "bias"))],
            "weight_decay": 0.01,
            "lr": rates,
        },
        {
            "params": [p for p in parameters if p.name.endswith(("gamma", "beta", "bias"))],
            "lr": [2 * rate for rate in rates],
        },
        {"order_params": parameters},
    ]
    return nn.SGD(groups, learning_rate=0.02, momentum=0.9, nesterov=True)
