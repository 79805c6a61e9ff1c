import math

import mindspore as ms
from mindspore import nn, ops


def timestep_embedding(timesteps, dim, max_period=10000, downscale_freq_shift=1):
    half = dim // 2
    exponent = -math.log(max_period) * ops.arange(half).astype(ms.float32)
    exponent = exponent / (half - downscale_freq_shift)
    args = timesteps[:, None].astype(ms.float32) * ops.exp(exponent)[None]
    return ops.cat([ops.cos(args), ops.sin(args)], axis=-1)


class Net(nn.Cell):
    def __init__(self, width=32, channels=8):
        super().__init__()
        self.time = nn.SequentialCell(nn.Dense(width, 64), nn.SiLU(), nn.Dense(64, channels))
        self.conv_in = nn.Conv2d(3, channels, 3, pad_mode="pad", padding=1, has_bias=True)
        self.norm = nn.GroupNorm(4, channels)
        self.conv_out = nn.Conv2d(channels, 3, 3, pad_mode="pad", padding=1, has_bias=True)
        self.width = width

    def construct(self, image, timesteps):
        shift = self.time(timestep_embedding(timesteps, self.width))
        x = self.conv_in(image) + shift[:, :, None, None]
        return self.conv_out(ops.silu(self.norm(x)))
