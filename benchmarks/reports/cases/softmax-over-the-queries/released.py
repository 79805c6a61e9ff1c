import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels=16, heads=2, size=8):
        super().__init__()
        self.heads, self.size = heads, size
        self.norm = nn.GroupNorm(4, channels)
        self.projection = nn.Linear(channels, heads * size * 3)
        self.output = nn.Linear(heads * size, channels)

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.view(b, c, -1).permute(0, 2, 1)
        y = self.norm(x.mT).mT
        q, k, v = self.projection(y).view(b, h * w, self.heads, -1).chunk(3, dim=-1)
        attn = torch.einsum("bihd,bjhd->bijh", q, k) * self.size**-0.5
        attn = attn.softmax(dim=1)
        res = torch.einsum("bijh,bjhd->bihd", attn, v).reshape(b, h * w, -1)
        return (self.output(res) + x).permute(0, 2, 1).view(b, c, h, w)
