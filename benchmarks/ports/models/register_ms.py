"""Registration of two images: an affine step, then a flow integrated by scaling and squaring."""

import mindspore as ms
from mindspore import Tensor, nn, ops


def sample(image, y, x, border=False):
    """Bilinear, with zeros outside; y and x are pixels of shape (b, rows, columns)."""
    b, c, h, w = image.shape
    near = 0 if border else 1
    y = ops.clamp(y, -near, h - 1 + near)
    x = ops.clamp(x, -near, w - 1 + near)
    top = ops.stop_gradient(ops.floor(y))
    left = ops.stop_gradient(ops.floor(x))
    down = (y - top).expand_dims(1)
    right = (x - left).expand_dims(1)
    wide = w + 3
    flat = ops.pad(image, (1, 2, 1, 2)).reshape(b, c, -1)
    index = ((top + 1) * wide + left + 1).astype(ms.int32).reshape(b, 1, -1)
    index = ops.broadcast_to(index, (b, c, index.shape[-1]))

    def corner(offset):
        value = ops.gather_elements(flat, 2, index + offset)
        return value.reshape((b, c) + y.shape[1:])

    upper = corner(0) * (1 - right) + corner(1) * right
    lower = corner(wide) * (1 - right) + corner(wide + 1) * right
    return upper * (1 - down) + lower * down


def warp(image, flow):
    """Samples where the flow points; the flow has rows and columns in pixels."""
    h, w = image.shape[2:]
    y = ops.arange(h).astype(ms.float32).reshape(1, h, 1)
    x = ops.arange(w).astype(ms.float32).reshape(1, 1, w)
    return sample(image, y + flow[:, 0], x + flow[:, 1])


def conv3(cin, cout, stride=1):
    return nn.Conv2d(cin, cout, 3, stride=stride, pad_mode="pad", padding=1, has_bias=True)


class Net(nn.Cell):
    """The moved image and the flow."""

    def __init__(self, c=8, squarings=2):
        super().__init__()
        self.squarings = squarings
        self.pose1 = conv3(2, c, stride=2)
        self.pose2 = conv3(c, 2 * c, stride=2)
        self.pose = nn.Dense(2 * c, 6)
        self.flow1 = conv3(2, c, stride=2)
        self.flow2 = conv3(c, c)
        self.flow = conv3(c, 2)
        self.act = nn.LeakyReLU(alpha=0.01)
        self.identity = Tensor([1, 0, 0, 0, 1, 0], ms.float32)

    def align(self, moving, fixed):
        b, _, h, w = moving.shape
        f = self.act(self.pose1(ops.cat([moving, fixed], axis=1)))
        f = self.act(self.pose2(f)).mean(axis=(2, 3))
        theta = self.identity + 0.3 * ops.tanh(self.pose(f))
        theta = theta.reshape(b, 2, 3)
        y = ((2 * ops.arange(h).astype(ms.float32) + 1) / h - 1).reshape(1, h, 1)
        x = ((2 * ops.arange(w).astype(ms.float32) + 1) / w - 1).reshape(1, 1, w)
        m = theta[:, :, :, None, None]
        x_new = m[:, 0, 0] * x + m[:, 0, 1] * y + m[:, 0, 2]
        y_new = m[:, 1, 0] * x + m[:, 1, 1] * y + m[:, 1, 2]
        rows, columns = ((y_new + 1) * h - 1) / 2, ((x_new + 1) * w - 1) / 2
        return sample(moving, rows, columns, border=True)

    def construct(self, moving, fixed):
        aligned = self.align(moving, fixed)
        h = self.act(self.flow1(ops.cat([aligned, fixed], axis=1)))
        h = self.act(self.flow2(h))
        flow = self.flow(h) / 2**self.squarings
        for _ in range(self.squarings):
            flow = flow + warp(flow, flow)
        size = (2 * flow.shape[2], 2 * flow.shape[3])
        flow = 2 * ops.interpolate(flow, size=size, mode="bilinear", align_corners=True)
        return warp(aligned, flow), flow


def mean(x, window=5):
    return ops.avg_pool2d(x, window, stride=1, padding=window // 2)


def correlation(a, b):
    """Squared local correlation in windows."""
    cross = mean(a * b) - mean(a) * mean(b)
    var_a = mean(a * a) - mean(a) * mean(a)
    var_b = mean(b * b) - mean(b) * mean(b)
    return cross * cross / (var_a * var_b + 1e-3)


def loss(outputs, targets):
    """Local correlation with the fixed image, and the smoothness of the flow."""
    moved, flow = outputs
    rows = ops.square(flow[:, :, 1:] - flow[:, :, :-1]).mean()
    columns = ops.square(flow[:, :, :, 1:] - flow[:, :, :, :-1]).mean()
    return 0.05 * (rows + columns) / 2 - correlation(moved, targets).mean()
