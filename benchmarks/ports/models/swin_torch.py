"""Two Swin blocks (plain and shifted windows), a merging of patches, a head."""

import torch
from torch import nn


def partition(x, m):
    """[B, H, W, C] to [B * windows, m * m, C]."""
    b, h, w, c = x.shape
    x = x.view(b, h // m, m, w // m, m, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, m * m, c)


def reverse(windows, m, h, w):
    """The inverse of partition."""
    x = windows.view(-1, h // m, w // m, m, m, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, h, w, windows.shape[-1])


class WindowAttention(nn.Module):
    """Attention within windows with a relative position bias."""

    def __init__(self, dim, m, heads):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * m - 1) ** 2, heads))
        grid = torch.stack(torch.meshgrid(torch.arange(m), torch.arange(m), indexing="ij"))
        grid = grid.flatten(1)
        relative = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0) + m - 1
        index = relative[..., 0] * (2 * m - 1) + relative[..., 1]
        self.register_buffer("relative_position_index", index)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        nn.init.normal_(self.relative_position_bias_table, std=0.5)

    def forward(self, x, mask=None):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = q * self.scale @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index]
        attn = attn + bias.permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            attn = attn.view(b // windows, windows, self.heads, n, n) + mask[None, :, None]
            attn = attn.view(-1, self.heads, n, n)
        x = (attn.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c)
        return self.proj(x)


class Block(nn.Module):
    """A Swin block."""

    def __init__(self, dim, heads, m, shift, size):
        super().__init__()
        self.m, self.shift = m, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, m, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        mask = None
        if shift:
            image, count = torch.zeros(1, size, size, 1), 0
            parts = (slice(0, -m), slice(-m, -shift), slice(-shift, None))
            for rows in parts:
                for columns in parts:
                    image[:, rows, columns] = count
                    count += 1
            ids = partition(image, m).squeeze(-1)
            mask = (ids[:, None, :] != ids[:, :, None]).float() * -100.0
        self.register_buffer("attn_mask", mask)

    def forward(self, x):
        b, h, w, c = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = reverse(self.attn(partition(y, self.m), self.attn_mask), self.m, h, w)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    """Four neighbours become one."""

    def __init__(self, dim):
        super().__init__()
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)
        self.norm = nn.LayerNorm(4 * dim)

    def forward(self, x):
        parts = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.reduction(self.norm(torch.cat(parts, -1)))


class Net(nn.Module):
    """Input [B, 3, 16, 16]."""

    def __init__(self, dim=8, heads=2, m=4, classes=4):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 2, 2)
        self.blocks = nn.Sequential(Block(dim, heads, m, 0, 8), Block(dim, heads, m, m // 2, 8))
        self.merge = PatchMerging(dim)
        self.head = nn.Linear(2 * dim, classes)

    def forward(self, x):
        x = self.embed(x).permute(0, 2, 3, 1)
        x = self.merge(self.blocks(x))
        return self.head(x.mean((1, 2)))
