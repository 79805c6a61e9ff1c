import torch
from torch import nn


def shift_mask(size=8, window=4, shift=2):
    region = torch.zeros(size, size)
    cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    for i, rows in enumerate(cuts):
        for j, columns in enumerate(cuts):
            region[rows, columns] = 3 * i + j
    count = size // window
    region = region.view(count, window, count, window).transpose(1, 2).reshape(-1, window * window)
    mask = region.unsqueeze(1) - region.unsqueeze(2)
    return mask.masked_fill(mask != 0, -100.0)


class Net(nn.Module):
    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", shift_mask(), persistent=False)

    def forward(self, x):  # windows of all images: (images * 4, 16, width)
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = (q * (c // self.heads) ** -0.5) @ k.transpose(2, 3)
        score = score.view(-1, 4, self.heads, n, n) + self.mask[None, :, None]
        weights = score.view(b, self.heads, n, n).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, c))
