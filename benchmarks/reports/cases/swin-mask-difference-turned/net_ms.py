import mindspore as ms
import numpy as np
from mindspore import nn, ops


def shift_mask(size=8, window=4, shift=2):
    region = np.zeros((size, size), "float32")
    cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    for i, rows in enumerate(cuts):
        for j, columns in enumerate(cuts):
            region[rows, columns] = 3 * i + j
    count = size // window
    region = region.reshape(count, window, count, window).swapaxes(1, 2).reshape(-1, window * window)
    mask = region[:, :, None] - region[:, None, :]
    return ms.Tensor(np.where(mask != 0, -100.0, 0.0).astype("float32"))


class Net(nn.Cell):
    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.qkv, self.proj = heads, nn.Dense(width, 3 * width), nn.Dense(width, width)
        self.mask = shift_mask()

    def construct(self, x):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        score = ops.matmul(q * (c // self.heads) ** -0.5, k.swapaxes(2, 3))
        score = score.reshape(-1, 4, self.heads, n, n) + self.mask[None, :, None]
        weights = ops.softmax(score.reshape(b, self.heads, n, n), -1)
        return self.proj(ops.matmul(weights, v).swapaxes(1, 2).reshape(b, n, c))
