"""The segmentation head with a GroupNorm of one channel a group and a hand-made pixel shuffle."""

from mindspore import nn, ops


def block(cin, cout, k=3, rate=1):
    return nn.SequentialCell(
        [
            nn.Conv2d(cin, cout, k, pad_mode="same", dilation=rate, has_bias=True),
            nn.GroupNorm(cout, cout, eps=1e-3),
            nn.LeakyReLU(0.01),
        ]
    )


def depth_to_space(x, r):
    n, c, h, w = x.shape
    x = x.reshape(n, c // (r * r), r, r, h, w)
    return x.transpose(0, 1, 4, 2, 5, 3).reshape(n, c // (r * r), h * r, w * r)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.entry = block(2, 6)
        self.aspp1 = block(6, 4, rate=1)
        self.aspp2 = block(6, 4, rate=2)
        self.aspp3 = block(6, 4, rate=3)
        self.pool_dense = nn.Dense(6, 4)
        self.merge = block(16, 8, 1)
        self.out = nn.Conv2d(2, 3, 1, has_bias=True)

    def construct(self, x):
        x = self.entry(x)
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // 2, 2, w // 2, 2).mean((3, 5))
        g = ops.relu(self.pool_dense(x.mean((2, 3))))
        g = g.expand_dims(-1).expand_dims(-1) + ops.zeros((1, 1) + x.shape[2:])
        x = ops.cat((self.aspp1(x), self.aspp2(x), self.aspp3(x), g), 1)
        return nn.Softmax(axis=1)(self.out(depth_to_space(self.merge(x), 2)))


def loss(outputs, targets):
    classes = ops.arange(outputs.shape[1]).reshape(1, -1, 1, 1)
    onehot = (targets.expand_dims(1) == classes).float()
    p = outputs.reshape(outputs.shape[0], outputs.shape[1], -1)
    t = onehot.reshape(p.shape)
    dice = (2 * (p * t).sum(-1) + 1) / (p.sum(-1) + t.sum(-1) + 1)
    nll = -ops.log((p * t).sum(1).clamp(1e-6)).mean()
    return 1.0 - dice[:, 1:].mean() + nll / 2
