"""A small diffusion model: v-prediction, FiLM by the time, min-SNR weights, AdamW with warm-up and look-ahead."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def conv(inputs, outputs, size=3):
    """A convolution that keeps the picture's size."""
    return nn.Conv2d(inputs, outputs, size, pad_mode="pad", padding=size // 2, has_bias=True)


def time_embedding(t, size, longest=10000):
    """Cosines, then sines."""
    half = size // 2
    freqs = ops.exp(-math.log(longest) * ops.arange(half).astype(ms.float32) / half)
    angle = t.expand_dims(1).astype(ms.float32) * freqs.expand_dims(0)
    return ops.cat([ops.cos(angle), ops.sin(angle)], axis=-1)


class ResBlock(nn.Cell):
    """Norm, SiLU, convolution twice; the time scales and shifts between."""

    def __init__(self, inputs, outputs, time, groups=4):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, inputs)
        self.conv1 = conv(inputs, outputs)
        self.film = nn.Dense(time, 2 * outputs)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.conv2 = conv(outputs, outputs)
        self.skip = conv(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def construct(self, x, time):
        h = self.conv1(ops.silu(self.norm1(x)))
        film = self.film(ops.silu(time)).expand_dims(-1).expand_dims(-1)
        scale, shift = ops.chunk(film, 2, axis=1)
        h = self.norm2(h) * (1 + scale) + shift
        return self.skip(x) + self.conv2(ops.silu(h))


class Net(nn.Cell):
    """Takes clean pictures, noise and times; outputs the prediction, v and the signal-to-noise ratio."""

    def __init__(self, d=8, time=32, steps=40):
        super().__init__()
        betas = np.linspace(0.001, 0.1, steps)
        self.alpha_bar = Tensor(np.cumprod(1 - betas), ms.float32)
        self.time = nn.SequentialCell(nn.Dense(16, time), nn.SiLU(), nn.Dense(time, time))
        self.stem = conv(3, d)
        self.down = ResBlock(d, d, time)
        self.shrink = nn.Conv2d(d, 2 * d, 3, stride=2, pad_mode="valid", has_bias=True)
        self.middle = ResBlock(2 * d, 2 * d, time)
        self.up = ResBlock(3 * d, d, time)
        self.norm = nn.GroupNorm(4, d)
        self.out = conv(d, 3)

    def construct(self, clean, noise, t):
        bar = ops.gather(self.alpha_bar, t, 0).reshape(-1, 1, 1, 1)
        x = ops.sqrt(bar) * clean + ops.sqrt(1 - bar) * noise
        v = ops.sqrt(bar) * noise - ops.sqrt(1 - bar) * clean
        time = self.time(time_embedding(t, 16))
        first = self.down(self.stem(x), time)
        h = self.shrink(ops.pad(first, (0, 1, 0, 1)))
        h = self.middle(h, time)
        h = ops.interpolate(h, size=(2 * h.shape[2], 2 * h.shape[3]), mode="nearest")
        h = self.up(ops.cat([h, first], axis=1), time)
        h = self.out(ops.silu(self.norm(h)))
        return h, v, (bar / (1 - bar)).reshape(-1)


def loss(outputs, targets, gamma=5.0):
    """Squared error of v where the mask is one, weighted by the clipped ratio."""
    prediction, v, snr = outputs
    mask = targets.expand_dims(1).astype(ms.float32)
    error = (ops.square(prediction - v) * mask).sum(axis=(1, 2, 3))
    error = error / (v.shape[1] * mask.sum(axis=(1, 2, 3)))
    weight = ops.clamp(snr, max=gamma) / (snr + 1)
    return (weight * error).mean()


class LookAheadAdamW(nn.Optimizer):
    """AdamW with linear warm-up; every second step goes back towards the slow weights."""

    def __init__(self, params, decays, lr=0.01, betas=(0.9, 0.95), eps=1e-6, warmup=3, every=2, alpha=0.4):
        super().__init__(lr, params)
        self.lr = lr
        self.betas = betas
        self.eps = eps
        self.decays = decays
        self.warmup = warmup
        self.every = every
        self.alpha = alpha
        self.done = 0
        self.m = self.parameters.clone(prefix="m", init="zeros")
        self.v = self.parameters.clone(prefix="v", init="zeros")
        self.slow = self.parameters.clone(prefix="slow", init="same")

    def construct(self, gradients):
        self.done += 1
        lr = self.lr * min(1.0, self.done / self.warmup)
        one, two = self.betas
        for i, p in enumerate(self.parameters):
            g = gradients[i]
            ops.assign(p, p * (1 - lr * self.decays[i]))
            ops.assign(self.m[i], one * self.m[i] + (1 - one) * g)
            ops.assign(self.v[i], two * self.v[i] + (1 - two) * ops.square(g))
            mean = self.m[i] / (1 - one**self.done)
            square = self.v[i] / (1 - two**self.done)
            ops.assign(p, p - lr * mean / (ops.sqrt(square) + self.eps))
            if self.done % self.every == 0:
                ops.assign(self.slow[i], self.slow[i] + self.alpha * (p - self.slow[i]))
                ops.assign(p, self.slow[i])
        return True


def optimizer(parameters):
    """Weights decay, biases and norms do not."""
    parameters = list(parameters)
    decays = [0.2 if p.ndim > 1 else 0.0 for p in parameters]
    return LookAheadAdamW(parameters, decays)
