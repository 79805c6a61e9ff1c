"""The Inception net with branches as Sequentials and normalisation by scale and shift."""

import numpy as np
from mindspore import Tensor, nn, ops


def conv(cin, cout, size):
    return nn.SequentialCell(
        [
            nn.Conv2d(cin, cout, size, pad_mode="same"),
            nn.BatchNorm2d(cout, 1e-3),
            nn.ReLU(),
        ]
    )


class Mixed(nn.Cell):
    def __init__(self, cin):
        super().__init__()
        self.b0 = conv(cin, 6, 1)
        self.b1 = nn.SequentialCell(conv(cin, 4, 1), conv(4, 6, 5))
        self.b2 = nn.SequentialCell(conv(cin, 4, 1), conv(4, 4, (1, 7)), conv(4, 6, (7, 1)))
        self.b3 = conv(cin, 6, 1)

    def construct(self, x):
        pooled = ops.avg_pool2d(ops.pad(x, (1, 1, 1, 1)), 3, 1)
        return ops.concat((self.b0(x), self.b1(x), self.b2(x), self.b3(pooled)), axis=1)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        mean = np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1)
        std = np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1)
        self.scale = Tensor(1 / std)
        self.shift = Tensor(-mean / std)
        self.backbone = nn.CellList([conv(3, 8, 3), Mixed(8), Mixed(24)])
        self.logits = nn.Dense(24, 5)

    def construct(self, x):
        x = ops.sigmoid(x) * self.scale + self.shift
        x = self.backbone[1](self.backbone[0](x))
        x = self.backbone[2](ops.max_pool2d(x, 3, 2, 0, ceil_mode=True))
        return self.logits(x.mean(axis=(2, 3)))
