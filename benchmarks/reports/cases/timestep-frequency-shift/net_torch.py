import math

import torch
from torch import nn


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)
    args = timesteps[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


class Net(nn.Module):
    def __init__(self, width=32, channels=8):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, channels))
        self.conv_in = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.GroupNorm(4, channels)
        self.conv_out = nn.Conv2d(channels, 3, 3, padding=1)
        self.width = width

    def forward(self, image, timesteps):
        shift = self.time(timestep_embedding(timesteps, self.width))
        x = self.conv_in(image) + shift[:, :, None, None]
        return self.conv_out(nn.functional.silu(self.norm(x)))
