import torch
from torch import nn


def windows(x, s):
    b, h, w, c = x.shape
    return x.view(b, h // s, s, w // s, s, c).transpose(2, 3).reshape(-1, s * s, c)


def shift_mask(size, s, shift):
    region = torch.zeros(1, size, size, 1)
    for i, rows in enumerate((slice(0, -s), slice(-s, -shift), slice(-shift, None))):
        for j, cols in enumerate((slice(0, -s), slice(-s, -shift), slice(-shift, None))):
            region[:, rows, cols] = 3 * i + j
    region = windows(region, s)[..., 0]
    return (region[:, None] != region[:, :, None]) * -100.0


class Layer(nn.Module):
    def __init__(self, width, size, s, shift):
        super().__init__()
        self.s, self.shift, self.norm = s, shift, nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mask = shift_mask(size, s, s // 2) if shift else None

    def forward(self, x):
        b, h, w, c = x.shape
        q, k, v = self.qkv(windows(self.norm(x).roll((-self.shift, -self.shift), (1, 2)), self.s)).chunk(3, -1)
        score = q @ k.transpose(1, 2) / c**0.5
        if self.mask is not None:
            score = score + self.mask.repeat(b, 1, 1)
        y = self.proj(score.softmax(-1) @ v).view(b, h // self.s, w // self.s, self.s, self.s, c)
        y = y.transpose(2, 3).reshape(b, h, w, c)
        return x + y.roll((self.shift, self.shift), (1, 2))


class Net(nn.Module):
    def __init__(self, width=16, size=8, s=4):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.ModuleList([Layer(width, size, s, shift) for shift in (0, s // 2)])
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image):
        x = self.first(image).permute(0, 2, 3, 1)
        for layer in self.layers:
            x = layer(x)
        return image + self.last(x.permute(0, 3, 1, 2))
