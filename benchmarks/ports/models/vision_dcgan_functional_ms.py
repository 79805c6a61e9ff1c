"""The small DCGAN in one flat cell, losses by softplus."""

from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.g_fc = nn.Dense(6, 128)
        self.g_bn0 = nn.BatchNorm2d(8, eps=0.8)
        self.g_up1 = nn.Conv2dTranspose(8, 6, 4, stride=2, pad_mode="same")
        self.g_bn1 = nn.BatchNorm2d(6, eps=0.8)
        self.g_up2 = nn.Conv2dTranspose(6, 1, 3, stride=2, pad_mode="valid", has_bias=True)
        self.d_conv1 = nn.Conv2d(1, 6, 4, 2, has_bias=True)
        self.d_conv2 = nn.Conv2d(6, 8, 4, 2)
        self.d_bn = nn.BatchNorm2d(8)
        self.d_fc = nn.Dense(128, 1)

    def generate(self, z):
        h = ops.reshape(self.g_fc(z), (-1, 8, 4, 4))
        h = self.g_up1(ops.relu(self.g_bn0(h)))
        h = self.g_bn1(h)
        h = ops.maximum(h, 0.1 * h)
        return ops.tanh(self.g_up2(h)[:, :, 1:, 1:])

    def discriminate(self, x):
        h = self.d_conv1(x)
        h = ops.maximum(h, 0.1 * h)
        h = self.d_bn(self.d_conv2(h))
        h = ops.maximum(h, 0.1 * h)
        return self.d_fc(ops.flatten(h))[:, 0]

    def construct(self, noise, real):
        fake = self.generate(noise)
        a = self.discriminate(real)
        b = self.discriminate(ops.stop_gradient(fake))
        c = self.discriminate(fake)
        return a, b, c, fake


def softplus(x):
    return ops.relu(x) + ops.log(1 + ops.exp(-ops.abs(x)))


def loss(outputs, targets=None):
    a, b, c, _ = outputs
    d_real = 0.9 * softplus(-a) + 0.1 * softplus(a)
    return 0.5 * (d_real.mean() + softplus(b).mean()) + softplus(-c).mean()
