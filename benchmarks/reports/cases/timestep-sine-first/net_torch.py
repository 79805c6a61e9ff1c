import math

import torch
from torch import nn


class Timesteps(nn.Module):
    def __init__(self, channels, flip_sin_to_cos):
        super().__init__()
        self.channels, self.flip = channels, flip_sin_to_cos

    def forward(self, timesteps):
        half = self.channels // 2
        rates = torch.exp(-math.log(10000) * torch.arange(half) / half)
        angles = timesteps[:, None].float() * rates
        emb = torch.cat([angles.sin(), angles.cos()], -1)
        return torch.cat([emb[:, half:], emb[:, :half]], -1) if self.flip else emb


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.proj = Timesteps(16, flip_sin_to_cos=True)
        self.linear_1, self.linear_2 = nn.Linear(16, width), nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.ff = nn.Linear(width, width)

    def forward(self, tokens, timesteps):
        emb = self.linear_2(nn.functional.silu(self.linear_1(self.proj(timesteps))))
        scale, shift = emb[:, None].chunk(2, -1)
        return tokens + self.ff(self.norm(tokens) * (1 + scale) + shift)
