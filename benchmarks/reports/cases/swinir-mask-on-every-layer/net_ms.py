import mindspore as ms
import numpy as np
from mindspore import nn, ops


def windows(x, s):
    b, h, w, c = x.shape
    return x.reshape(b, h // s, s, w // s, s, c).swapaxes(2, 3).reshape(-1, s * s, c)


def roll(x, by):
    if by:
        x = ops.cat([x[:, by:], x[:, :by]], 1)
        x = ops.cat([x[:, :, by:], x[:, :, :by]], 2)
    return x


def shift_mask(size, s, shift):
    region = np.zeros((1, size, size, 1), "float32")
    for i, rows in enumerate((slice(0, -s), slice(-s, -shift), slice(-shift, None))):
        for j, cols in enumerate((slice(0, -s), slice(-s, -shift), slice(-shift, None))):
            region[:, rows, cols] = 3 * i + j
    region = windows(region, s)[..., 0]
    return ms.Tensor(np.where(region[:, None] != region[:, :, None], -100.0, 0.0).astype("float32"))


class Layer(nn.Cell):
    def __init__(self, width, size, s, shift):
        super().__init__()
        self.s, self.shift, self.norm = s, shift, nn.LayerNorm((width,), epsilon=1e-5)
        self.qkv, self.proj = nn.Dense(width, 3 * width), nn.Dense(width, width)
        self.mask = shift_mask(size, s, s // 2)

    def construct(self, x):
        b, h, w, c = x.shape
        moved = roll(self.norm(x), self.shift)
        q, k, v = ops.chunk(self.qkv(windows(moved, self.s)), 3, -1)
        score = ops.matmul(q, k.swapaxes(1, 2)) / c**0.5 + ops.tile(self.mask, (b, 1, 1))
        y = self.proj(ops.matmul(ops.softmax(score, -1), v))
        y = y.reshape(b, h // self.s, w // self.s, self.s, self.s, c).swapaxes(2, 3).reshape(b, h, w, c)
        return x + roll(y, -self.shift)


class Net(nn.Cell):
    def __init__(self, width=16, size=8, s=4):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, pad_mode="pad", padding=1, has_bias=True)
        self.layers = nn.CellList([Layer(width, size, s, shift) for shift in (0, s // 2)])
        self.last = nn.Conv2d(width, 3, 3, pad_mode="pad", padding=1, has_bias=True)

    def construct(self, image):
        x = self.first(image).transpose(0, 2, 3, 1)
        for layer in self.layers:
            x = layer(x)
        return image + self.last(x.transpose(0, 3, 1, 2))
