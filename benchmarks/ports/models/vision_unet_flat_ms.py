"""The two-level U-Net without nested blocks."""

import mindspore.nn as nn
from mindspore import ops


def unit(cin, cout):
    return [nn.Conv2d(cin, cout, 3), nn.BatchNorm2d(cout), nn.ReLU()]


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.encoder1 = nn.SequentialCell(unit(3, 6) + unit(6, 6))
        self.encoder2 = nn.SequentialCell(unit(6, 12) + unit(12, 12))
        self.bottom = nn.SequentialCell(unit(12, 12) + unit(12, 12))
        self.decoder2 = nn.SequentialCell(unit(24, 6) + unit(6, 6))
        self.deconv = nn.Conv2dTranspose(6, 6, 2, 2, pad_mode="pad", padding=0, has_bias=True)
        self.decoder1 = nn.SequentialCell(unit(12, 6) + unit(6, 6))
        self.classify = nn.Conv2d(6, 4, 1, has_bias=True)

    def construct(self, x):
        e1 = self.encoder1(x)
        e2 = self.encoder2(ops.max_pool2d(e1, 2))
        m = self.bottom(ops.max_pool2d(e2, 2))
        m = ops.interpolate(m, scale_factor=2.0, mode="bilinear", recompute_scale_factor=True)
        h, w = e2.shape[-2:]
        m = ops.pad(m, (0, w - m.shape[-1], 0, h - m.shape[-2]))
        d2 = self.decoder2(ops.concat((e2, m), 1))
        d1 = self.decoder1(ops.concat((e1, self.deconv(d2)), 1))
        return self.classify(d1)
