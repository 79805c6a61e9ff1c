"""Two Swin blocks (plain and shifted windows), a merging of patches, a head."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def roll(x, shift):
    """Roll both image axes (ops.roll has no CPU kernel)."""
    x = ops.concat((x[:, -shift:], x[:, :-shift]), axis=1)
    return ops.concat((x[:, :, -shift:], x[:, :, :-shift]), axis=2)


def window_partition(x, m):
    """[B, H, W, C] to [B * windows, m * m, C]."""
    b, h, w, c = x.shape
    x = x.reshape(b, h // m, m, w // m, m, c)
    x = x.transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(-1, m * m, c)


def window_reverse(windows, m, h, w):
    """The inverse of window_partition."""
    c = windows.shape[-1]
    x = windows.reshape(-1, h // m, w // m, m, m, c)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, h, w, c)


def relative_index(m):
    """Rows of the bias table, [query, key]."""
    y, x = np.meshgrid(np.arange(m), np.arange(m), indexing="ij")
    y, x = y.reshape(-1), x.reshape(-1)
    dy = y[:, None] - y[None, :] + m - 1
    dx = x[:, None] - x[None, :] + m - 1
    return dy * (2 * m - 1) + dx


def shift_mask(size, m, shift):
    """-100 between regions that are no neighbours."""
    image = np.zeros((size, size))
    for i, rows in enumerate((slice(0, -m), slice(-m, -shift), slice(-shift, None))):
        for j, columns in enumerate((slice(0, -m), slice(-m, -shift), slice(-shift, None))):
            image[rows, columns] = 3 * i + j
    n = size // m
    ids = image.reshape(n, m, n, m).transpose(0, 2, 1, 3).reshape(-1, m * m)
    mask = np.where(ids[:, None, :] == ids[:, :, None], 0.0, -100.0)
    return Tensor(mask, ms.float32)


class WindowAttention(nn.Cell):
    """Attention within windows with a relative position bias."""

    def __init__(self, dim, m, heads):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.table = Parameter(Tensor(np.zeros(((2 * m - 1) ** 2, heads)), ms.float32))
        self.index = Tensor(relative_index(m).reshape(-1), ms.int32)
        self.qkv = nn.Dense(dim, 3 * dim)
        self.proj = nn.Dense(dim, dim)

    def construct(self, x, mask):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        attn = ops.matmul(q * self.scale, k.swapaxes(-1, -2))
        bias = self.table[self.index].reshape(n, n, self.heads)
        attn = attn + bias.transpose(2, 0, 1).expand_dims(0)
        if mask is not None:
            windows = mask.shape[0]
            attn = attn.reshape(b // windows, windows, self.heads, n, n)
            attn = (attn + mask[None, :, None]).reshape(-1, self.heads, n, n)
        x = ops.matmul(ops.softmax(attn, -1), v)
        return self.proj(x.swapaxes(1, 2).reshape(b, n, c))


class SwinBlock(nn.Cell):
    """A Swin block."""

    def __init__(self, dim, heads, m, shift, size):
        super().__init__()
        self.m, self.shift = m, shift
        self.norm1 = nn.LayerNorm([dim], epsilon=1e-5)
        self.attn = WindowAttention(dim, m, heads)
        self.norm2 = nn.LayerNorm([dim], epsilon=1e-5)
        self.fc1 = nn.Dense(dim, 2 * dim)
        self.fc2 = nn.Dense(2 * dim, dim)
        self.mask = shift_mask(size, m, shift) if shift else None

    def construct(self, x):
        b, h, w, c = x.shape
        shortcut = x
        x = self.norm1(x)
        if self.shift:
            x = roll(x, -self.shift)
        x = self.attn(window_partition(x, self.m), self.mask)
        x = window_reverse(x, self.m, h, w)
        if self.shift:
            x = roll(x, self.shift)
        x = shortcut + x
        return x + self.fc2(ops.gelu(self.fc1(self.norm2(x))))


class PatchMerging(nn.Cell):
    """Four neighbours become one."""

    def __init__(self, dim):
        super().__init__()
        self.reduction = nn.Dense(4 * dim, 2 * dim, has_bias=False)
        self.norm = nn.LayerNorm([4 * dim], epsilon=1e-5)

    def construct(self, x):
        b, h, w, c = x.shape
        x = x.reshape(b, h // 2, 2, w // 2, 2, c)
        x0, x1 = x[:, :, 0, :, 0], x[:, :, 1, :, 0]
        x2, x3 = x[:, :, 0, :, 1], x[:, :, 1, :, 1]
        x = ops.concat((x0, x1, x2, x3), axis=-1)
        return self.reduction(self.norm(x))


class Net(nn.Cell):
    """Input [B, 3, 16, 16]."""

    def __init__(self, dim=8, heads=2, m=4, classes=4):
        super().__init__()
        self.embed = nn.Conv2d(3, dim, 2, 2, pad_mode="valid", has_bias=True)
        self.layer0 = SwinBlock(dim, heads, m, 0, 8)
        self.layer1 = SwinBlock(dim, heads, m, m // 2, 8)
        self.merge = PatchMerging(dim)
        self.head = nn.Dense(2 * dim, classes)

    def construct(self, x):
        x = self.embed(x).transpose(0, 2, 3, 1)
        x = self.layer1(self.layer0(x))
        x = self.merge(x)
        return self.head(x.mean((1, 2)))
