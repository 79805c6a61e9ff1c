"""The detection head with NHWC outputs, an own group norm and NumPy anchors."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class GroupNorm(nn.Cell):
    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.weight = Parameter(Tensor(np.ones((1, channels, 1, 1), np.float32)))
        self.bias = Parameter(Tensor(np.zeros((1, channels, 1, 1), np.float32)))

    def construct(self, x):
        n = x.shape[0]
        y = x.reshape((n, self.groups, -1))
        y = y - y.mean(-1, keep_dims=True)
        y = y * ops.rsqrt((y * y).mean(-1, keep_dims=True) + 1e-5)
        return y.reshape(x.shape) * self.weight + self.bias


def conv3(cin, cout, stride=1):
    return nn.Conv2d(cin, cout, 3, stride, "pad", 1, has_bias=True)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.c1 = conv3(3, 8, 2)
        self.c2 = conv3(8, 8, 2)
        self.class_tower = nn.SequentialCell(conv3(8, 8), GroupNorm(4, 8), nn.ReLU(), conv3(8, 6))
        self.box_tower = nn.SequentialCell(conv3(8, 8), GroupNorm(4, 8), nn.ReLU(), conv3(8, 8))
        self.factor = Parameter(Tensor(np.array([1.0], np.float32)), name="factor")
        rows, columns = np.mgrid[0:4, 0:4]
        centers = (np.stack([columns, rows], -1).reshape(-1, 2) + 0.5) / 4
        self.centers = Tensor(np.repeat(centers, 2, axis=0)[None].astype(np.float32))

    def construct(self, images):
        f = self.c1(images)
        f = f * ops.sigmoid(f)
        f = self.c2(f)
        f = f * ops.sigmoid(f)
        n = f.shape[0]
        logits = self.class_tower(f).permute(0, 2, 3, 1).reshape((n, -1, 3))
        boxes = self.box_tower(f).permute(0, 2, 3, 1).reshape((n, -1, 4)) * self.factor
        xy, wh = ops.split(boxes, 2, axis=-1)
        xy = self.centers + xy / 4
        half = ops.exp(ops.minimum(wh, 2.0)) / 8
        return logits, ops.concat((xy - half, xy + half), axis=-1)


def loss(outputs, targets):
    logits, boxes = outputs
    coordinates, mark = targets[:, :, :4], targets[:, :, 4:]
    positive = (mark > 0.3).astype("float32")
    one = (mark > 1.0).astype("float32")
    onehot = ops.cat([positive * (1 - one), positive * one, 0 * positive], axis=-1)
    log_p, log_q = ops.logsigmoid(logits), ops.logsigmoid(-logits)
    p = ops.sigmoid(logits)
    focal = -0.25 * onehot * (1 - p) ** 2 * log_p - 0.75 * (1 - onehot) * p**2 * log_q
    box = ops.smooth_l1_loss(boxes, coordinates, beta=0.5, reduction="none") * positive
    return (focal.sum() + box.sum()) / ops.maximum(positive.sum(), 1.0)
