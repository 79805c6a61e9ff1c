import math

import mindspore as ms
from mindspore import nn, ops


class Timesteps(nn.Cell):
    def __init__(self, channels, flip_sin_to_cos):
        super().__init__()
        self.channels, self.flip = channels, flip_sin_to_cos

    def construct(self, timesteps):
        half = self.channels // 2
        rates = ops.exp(-math.log(10000) * ops.arange(half).astype(ms.float32) / half)
        angles = timesteps[:, None].astype(ms.float32) * rates
        emb = ops.cat([ops.cos(angles), ops.sin(angles)], -1)
        return ops.cat([emb[:, half:], emb[:, :half]], -1) if self.flip else emb


class Net(nn.Cell):
    def __init__(self, width=24):
        super().__init__()
        self.proj = Timesteps(16, flip_sin_to_cos=True)
        self.linear_1, self.linear_2 = nn.Dense(16, width), nn.Dense(width, 2 * width)
        self.ff = nn.Dense(width, width)

    def norm(self, x):
        mean = x.mean(-1, keep_dims=True)
        var = ops.square(x - mean).mean(-1, keep_dims=True)
        return (x - mean) / ops.sqrt(var + 1e-5)

    def construct(self, tokens, timesteps):
        emb = self.linear_2(ops.silu(self.linear_1(self.proj(timesteps))))
        scale, shift = ops.chunk(emb[:, None], 2, -1)
        return tokens + self.ff(self.norm(tokens) * (1 + scale) + shift)
