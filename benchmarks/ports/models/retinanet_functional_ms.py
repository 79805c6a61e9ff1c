"""RetinaNet with a functional pyramid and a loss over the whole batch."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def grid():
    """All anchors as centers and sizes."""
    rows = []
    for stride in (4, 8, 16, 32):
        n = 32 // stride
        for y in range(n):
            for x in range(n):
                for r in (1.0, 2.0):
                    side = 2 * stride
                    rows.append(
                        [(x + 0.5) * stride, (y + 0.5) * stride, side / r**0.5, side * r**0.5]
                    )
    return Tensor(np.array(rows, np.float32))


def up(x):
    """Every pixel twice in both directions."""
    b, c, h, w = x.shape
    x = mint.broadcast_to(x.reshape(b, c, h, 1, w, 1), (b, c, h, 2, w, 2))
    return x.reshape(b, c, 2 * h, 2 * w)


class Branch(nn.Cell):
    """Tower and last convolution of one of the two heads, with k numbers for each anchor."""

    def __init__(self, d, k, prior=0.0):
        super().__init__()
        self.k = k
        self.first = nn.Conv2d(d, d, 3, has_bias=True)
        self.gain = Parameter(mint.ones((d,)), name="gain")
        self.offset = Parameter(mint.zeros((d,)), name="offset")
        self.last = nn.Conv2d(d, 2 * k, 3, has_bias=True, bias_init=prior)

    def norm(self, x):
        b, d, h, w = x.shape
        x = x.reshape(b, 4, -1)
        x = x - mint.mean(x, -1, keepdim=True)
        x = x * mint.rsqrt(mint.mean(x * x, -1, keepdim=True) + 1e-5)
        return x.reshape(b, d, h, w) * self.gain.reshape(1, d, 1, 1) + self.offset.reshape(
            1, d, 1, 1
        )

    def construct(self, x):
        x = mint.nn.functional.relu(self.norm(self.first(x)))
        x = mint.permute(self.last(x), (0, 2, 3, 1))
        return x.reshape(x.shape[0], -1, self.k)


class Net(nn.Cell):
    """The pyramid is written out level by level."""

    def __init__(self, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, "pad", 1, has_bias=True)
        self.conv2 = nn.Conv2d(8, 8, 3, 2, "pad", 1, has_bias=True)
        self.conv3 = nn.Conv2d(8, 12, 3, 2, "pad", 1, has_bias=True)
        self.conv4 = nn.Conv2d(12, 12, 3, 2, "pad", 1, has_bias=True)
        self.side3 = nn.Conv2d(8, 12, 1, has_bias=True)
        self.side4 = nn.Conv2d(12, 12, 1, has_bias=True)
        self.side5 = nn.Conv2d(12, 12, 1, has_bias=True)
        self.fix3 = nn.Conv2d(12, 12, 3, has_bias=True)
        self.fix4 = nn.Conv2d(12, 12, 3, has_bias=True)
        self.fix5 = nn.Conv2d(12, 12, 3, has_bias=True)
        self.down = nn.Conv2d(12, 12, 3, 2, "pad", 1, has_bias=True)
        self.classify = Branch(12, classes, -2.1972246)
        self.regress = Branch(12, 4)

    def construct(self, x):
        c3 = ops.relu(self.conv2(ops.relu(self.conv1(x))))
        c4 = ops.relu(self.conv3(c3))
        c5 = ops.relu(self.conv4(c4))
        m5 = self.side5(c5)
        m4 = self.side4(c4) + up(m5)
        m3 = self.side3(c3) + up(m4)
        levels = (self.fix3(m3), self.fix4(m4), self.fix5(m5), self.down(c5))
        scores = mint.cat([self.classify(p) for p in levels], dim=1)
        return scores, mint.cat([self.regress(p) for p in levels], dim=1)


def loss(outputs, targets):
    """Everything has the axes image, anchor, object."""
    scores, deltas = outputs
    a = grid()
    t = targets.astype(ms.float32)
    wh = t[..., 2:4] - t[..., 0:2]
    xy = t[..., 0:2] + wh / 2
    gap = ops.abs(a[None, :, None, :2] - xy[:, None])
    half = (a[None, :, None, 2:] + wh[:, None]) / 2
    side = ops.minimum(half - gap, ops.minimum(a[None, :, None, 2:], wh[:, None]))
    side = mint.clamp(side, min=0.0)
    inter = side[..., 0] * side[..., 1]
    area = a[:, 2] * a[:, 3]
    iou = inter / (area[None, :, None] + (wh[..., 0] * wh[..., 1])[:, None] - inter)
    best = ops.amax(iou, -1)
    chosen = nn.OneHot(depth=t.shape[1])(iou.argmax(axis=-1).astype(ms.int32))
    pos = mint.where(best >= 0.5, 1.0, 0.0)
    use = pos + mint.where(best < 0.4, 1.0, 0.0)
    count = mint.clamp(mint.sum(pos, 1, keepdim=True), min=1.0)
    kind = nn.OneHot(depth=scores.shape[-1])(t[..., 4].astype(ms.int32))
    goal = mint.matmul(chosen, kind) * pos[..., None]
    sign = 2 * goal - 1
    wrong = mint.sigmoid(-sign * scores)
    nll = -ops.log(mint.sigmoid(sign * scores))
    fl = (0.75 - 0.5 * goal) * wrong * wrong * nll
    xy, wh = mint.matmul(chosen, xy), mint.matmul(chosen, wh)
    d = ops.abs(deltas - mint.cat([(xy - a[:, :2]) / a[:, 2:], ops.log(wh / a[:, 2:])], -1))
    l1 = mint.where(d < 1 / 9, 4.5 * d * d, d - 1 / 18)
    each = use * mint.sum(fl, -1) + pos * mint.sum(l1, -1)
    return mint.sum(each / count) / scores.shape[0]
