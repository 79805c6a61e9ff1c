"""A small DCGAN: generator and discriminator in one model, one loss for both."""

import mindspore as ms
from mindspore import nn, ops


def leaky_relu(x):
    return ops.leaky_relu(x, 0.1)


class Generator(nn.Cell):
    def __init__(self, nz=6, ngf=6):
        super().__init__()
        self.l1 = nn.Dense(nz, 8 * 4 * 4)
        self.main = nn.SequentialCell(
            nn.BatchNorm2d(8, 0.8),
            nn.ReLU(),
            nn.Conv2dTranspose(8, ngf, 4, 2, pad_mode="pad", padding=1),
            nn.BatchNorm2d(ngf, 0.8),
            nn.LeakyReLU(0.1),
            nn.Conv2dTranspose(ngf, 1, 3, 2, pad_mode="pad", padding=(1, 0, 1, 0), has_bias=True),
            nn.Tanh(),
        )

    def construct(self, z):
        x = self.l1(z).view(z.shape[0], 8, 4, 4)
        return self.main(x)


class Discriminator(nn.Cell):
    def __init__(self, ndf=6):
        super().__init__()
        self.conv1 = nn.Conv2d(1, ndf, 4, 2, pad_mode="pad", padding=1, has_bias=True)
        self.conv2 = nn.Conv2d(ndf, 8, 4, 2, pad_mode="pad", padding=1)
        self.bn2 = nn.BatchNorm2d(8)
        self.adv = nn.Dense(8 * 4 * 4, 1)

    def construct(self, img):
        x = leaky_relu(self.conv1(img))
        x = leaky_relu(self.bn2(self.conv2(x)))
        return self.adv(x.reshape(x.shape[0], -1)).squeeze(1)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.netG = Generator()
        self.netD = Discriminator()

    def construct(self, noise, real):
        fake = self.netG(noise)
        real_score = self.netD(real)
        fake_score = self.netD(ops.stop_gradient(fake))
        gen_score = self.netD(fake)
        return real_score, fake_score, gen_score, fake


def bce(scores, label):
    target = ops.full(scores.shape, label, dtype=ms.float32)
    ones = ops.ones_like(scores)
    return ops.binary_cross_entropy_with_logits(scores, target, ones, ones)


def loss(outputs, targets=None):
    """Discriminator loss with one-sided smoothing plus the generator's loss."""
    real_score, fake_score, gen_score, _ = outputs
    real = bce(real_score, 0.9)
    fake = bce(fake_score, 0.0)
    gen = bce(gen_score, 1.0)
    return 0.5 * (real + fake) + gen
