"""A small DCGAN: generator and discriminator in one model, one loss for both."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Generator(nn.Module):
    def __init__(self, nz=6, ngf=6):
        super().__init__()
        self.l1 = nn.Linear(nz, 8 * 4 * 4)
        self.main = nn.Sequential(
            nn.BatchNorm2d(8, 0.8),
            nn.ReLU(True),
            nn.ConvTranspose2d(8, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf, 0.8),
            nn.LeakyReLU(0.1, inplace=True),
            nn.ConvTranspose2d(ngf, 1, 3, 2, 1, output_padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        x = self.l1(z).view(z.shape[0], 8, 4, 4)
        return self.main(x)


class Discriminator(nn.Module):
    def __init__(self, ndf=6):
        super().__init__()
        self.conv1 = nn.Conv2d(1, ndf, 4, 2, 1)
        self.conv2 = nn.Conv2d(ndf, 8, 4, 2, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.adv = nn.Linear(8 * 4 * 4, 1)

    def forward(self, img):
        x = F.leaky_relu(self.conv1(img), 0.1)
        x = F.leaky_relu(self.bn2(self.conv2(x)), 0.1)
        return self.adv(x.flatten(1)).squeeze(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.netG = Generator()
        self.netD = Discriminator()

    def forward(self, noise, real):
        fake = self.netG(noise)
        real_score = self.netD(real)
        fake_score = self.netD(fake.detach())
        gen_score = self.netD(fake)
        return real_score, fake_score, gen_score, fake


def loss(outputs, targets=None):
    """Discriminator loss with one-sided smoothing plus the generator's loss."""
    real_score, fake_score, gen_score, _ = outputs
    bce = F.binary_cross_entropy_with_logits
    real = bce(real_score, torch.full_like(real_score, 0.9))
    fake = bce(fake_score, torch.zeros_like(fake_score))
    gen = bce(gen_score, torch.ones_like(gen_score))
    return 0.5 * (real + fake) + gen
