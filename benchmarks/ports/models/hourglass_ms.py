"""A small stacked hourglass for keypoints, with two supervised heads and soft-argmax coordinates."""

import mindspore as ms
from mindspore import nn, ops

SIZE = 16  # width and height of a heatmap
STRIDE = 2  # image pixels of a heatmap cell
SIGMA = 1.5
TOP_K = 3
CONFIDENT = 8  # annotations with less confidence (of 31) are not used


def norm(channels):
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.9)


def conv3x3(c_in, c_out, stride=1):
    return nn.Conv2d(c_in, c_out, 3, stride=stride, pad_mode="pad", padding=1, has_bias=False)


def conv1x1(c_in, c_out, bias=False):
    return nn.Conv2d(c_in, c_out, 1, pad_mode="valid", has_bias=bias)


class Residual(nn.Cell):
    """Pre-activation block; a 1x1 convolution adapts the width of the shortcut."""

    def __init__(self, c_in, c_out):
        super().__init__()
        self.relu = nn.ReLU()
        self.bn1 = norm(c_in)
        self.conv1 = conv3x3(c_in, c_out)
        self.bn2 = norm(c_out)
        self.conv2 = conv3x3(c_out, c_out)
        self.project = c_in != c_out
        if self.project:
            self.skip = conv1x1(c_in, c_out)

    def construct(self, x):
        y = self.relu(self.bn1(x))
        shortcut = self.skip(x) if self.project else x
        y = self.conv1(y)
        y = self.conv2(self.relu(self.bn2(y)))
        return shortcut + y


class Hourglass(nn.Cell):
    def __init__(self, depth, channels):
        super().__init__()
        self.up = Residual(channels, channels)
        self.pool = nn.MaxPool2d(kernel_size=2, stride=2)
        self.low1 = Residual(channels, channels)
        self.low2 = Hourglass(depth - 1, channels) if depth > 1 else Residual(channels, channels)

    def construct(self, x):
        skip = self.up(x)
        low = self.low1(self.pool(x))
        low = self.low2(low)
        size = (low.shape[2] * 2, low.shape[3] * 2)
        return skip + ops.interpolate(low, size=size, mode="nearest")


class Head(nn.Cell):
    """Features and heatmaps."""

    def __init__(self, channels, joints):
        super().__init__()
        self.conv = conv1x1(channels, channels)
        self.bn = norm(channels)
        self.relu = nn.ReLU()
        self.out = conv1x1(channels, joints, bias=True)

    def construct(self, x):
        feature = self.relu(self.bn(self.conv(x)))
        return feature, self.out(feature)


class SoftArgmax(nn.Cell):
    """Expected position (x, y) of each joint, from -1 to 1 between the centres of the outer cells."""

    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def construct(self, heat):
        b, j, h, w = heat.shape
        prob = ops.softmax(self.beta * heat.reshape(b, j, h * w), axis=-1).reshape(b, j, h, w)
        xs = ops.linspace(-1.0, 1.0, w)
        ys = ops.linspace(-1.0, 1.0, h)
        x = (prob.sum(axis=2) * xs).sum(axis=-1)
        y = (prob.sum(axis=3) * ys).sum(axis=-1)
        return ops.stack((x, y), axis=-1)


class Net(nn.Cell):
    """Outputs both heads' heatmaps and the last one's coordinates."""

    def __init__(self, joints=6, channels=12, beta=4.0):
        super().__init__()
        self.stem_conv = conv3x3(3, 8, stride=2)
        self.stem_bn = norm(8)
        self.stem_res = Residual(8, channels)
        self.hourglass = Hourglass(2, channels)
        self.head1 = Head(channels, joints)
        self.merge_features = conv1x1(channels, channels)
        self.merge_preds = conv1x1(joints, channels)
        self.res2 = Residual(channels, channels)
        self.head2 = Head(channels, joints)
        self.soft_argmax = SoftArgmax(beta)

    def construct(self, images):
        x = self.stem_res(ops.relu(self.stem_bn(self.stem_conv(images))))
        feature, heat1 = self.head1(self.hourglass(x))
        x = x + self.merge_features(feature) + self.merge_preds(heat1)
        _, heat2 = self.head2(self.res2(x))
        return heat1, heat2, self.soft_argmax(heat2)


def render(xy):
    """Gaussians around positions (x, y) in heatmap cells."""
    grid = ops.arange(SIZE).astype(ms.float32)
    dx = grid - xy[..., 0:1]
    dy = grid - xy[..., 1:2]
    d2 = ops.square(dy).expand_dims(-1) + ops.square(dx).expand_dims(-2)
    return ops.exp(-d2 / (2 * SIGMA**2))


def loss(outputs, targets):
    """Targets (batch, joints, 3): x and y in pixels of the image, and the annotation's confidence from 0 to 31."""
    heat1, heat2, coords = outputs
    xy = targets[..., :2].astype(ms.float32) / STRIDE
    conf = targets[..., 2].astype(ms.float32)
    weight = ops.where(conf < CONFIDENT, ops.zeros_like(conf), conf / 31)
    truth = render(xy)
    # all joints for the first head, the hardest ones of each image for the second
    each1 = ops.square(heat1 - truth).mean(axis=(2, 3)) * weight
    each2 = ops.square(heat2 - truth).mean(axis=(2, 3)) * weight
    hard, _ = ops.topk(each2, TOP_K, dim=1)
    goal = 2 * xy / (SIZE - 1) - 1
    near = ops.smooth_l1_loss(coords, goal, beta=0.2, reduction="none").sum(axis=-1)
    near = (near * weight).sum() / (weight.sum() + 1e-6)
    return each1.mean() + (hard.sum(axis=1) / TOP_K).mean() + 0.25 * near


class CentredRMSprop(nn.Optimizer):
    """RMSprop with the gradient's mean taken out of its square and with momentum."""

    def __init__(self, params, lr=2e-3, alpha=0.9, eps=1e-3, momentum=0.9, decay=1e-3):
        super().__init__(lr, params)
        self.lr = lr
        self.alpha = alpha
        self.eps = eps
        self.momentum = momentum
        self.decay = decay
        self.square = self.parameters.clone(prefix="square", init="zeros")
        self.mean = self.parameters.clone(prefix="mean", init="zeros")
        self.buffer = self.parameters.clone(prefix="buffer", init="zeros")

    def construct(self, grads):
        for p, g, s, m, b in zip(self.parameters, grads, self.square, self.mean, self.buffer):
            g = g + self.decay * p
            ops.assign(s, self.alpha * s + (1 - self.alpha) * g * g)
            ops.assign(m, self.alpha * m + (1 - self.alpha) * g)
            avg = ops.sqrt(s - m * m) + self.eps
            ops.assign(b, self.momentum * b + g / avg)
            ops.assign(p, p - self.lr * b)
        return True


def optimizer(parameters):
    return CentredRMSprop(parameters)
