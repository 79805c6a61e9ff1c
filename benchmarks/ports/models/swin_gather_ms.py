"""The Swin blocks as attention over all positions of a permuted sequence."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

SIZE, M = 8, 4


def order(shift):
    """Which position of the image stands at which place of which window."""
    places = np.roll(np.arange(SIZE * SIZE).reshape(SIZE, SIZE), (-shift, -shift), (0, 1))
    n = SIZE // M
    return places.reshape(n, M, n, M).transpose(0, 2, 1, 3).reshape(n * n, M * M)


def mask(shift):
    """Zero where two positions may see each other."""
    rows, columns = np.divmod(order(shift), SIZE)
    # A window holds rows of the image's end and of its start only by the roll.
    far = (np.abs(rows[:, :, None] - rows[:, None]) >= M) | (
        np.abs(columns[:, :, None] - columns[:, None]) >= M
    )
    return np.where(far, np.float32(-100), np.float32(0))


class Swin(nn.Cell):
    """One block on [B, positions, C]."""

    def __init__(self, c, heads, shift):
        super().__init__()
        self.heads = heads
        places = order(shift)
        self.places = Tensor(places.reshape(-1), ms.int32)
        self.back = Tensor(np.argsort(places.reshape(-1)), ms.int32)
        self.mask = Tensor(mask(shift)[:, None])
        inside = np.arange(M * M)
        dy = inside[:, None] // M - inside // M + M - 1
        dx = inside[:, None] % M - inside % M + M - 1
        self.rows = Tensor(dy * (2 * M - 1) + dx, ms.int32)
        self.ln1 = nn.LayerNorm([c], epsilon=1e-5)
        self.bias_table = Parameter(ops.zeros(((2 * M - 1) ** 2, heads), ms.float32))
        self.to_qkv, self.to_out = nn.Dense(c, 3 * c), nn.Dense(c, c)
        self.ln2 = nn.LayerNorm([c], epsilon=1e-5)
        self.mlp = nn.SequentialCell(nn.Dense(c, 2 * c), nn.GELU(False), nn.Dense(2 * c, c))

    def construct(self, x):
        b, n, c = x.shape
        windows = ops.gather(self.ln1(x), self.places, 1).reshape(b, -1, M * M, c)
        qkv = self.to_qkv(windows).reshape(b, -1, M * M, 3, self.heads, c // self.heads)
        q, k, v = qkv.transpose(3, 0, 1, 4, 2, 5)
        bias = mint.permute(self.bias_table[self.rows], (2, 0, 1))
        p = mint.softmax(
            mint.matmul(q, k.swapaxes(-1, -2)) * (c // self.heads) ** -0.5 + bias + self.mask, -1
        )
        y = mint.matmul(p, v).transpose(0, 1, 3, 2, 4).reshape(b, n, c)
        x = x + ops.gather(self.to_out(y), self.back, 1)
        return x + self.mlp(self.ln2(x))


class Net(nn.Cell):
    """Input [B, 3, 16, 16]."""

    def __init__(self, c=8, heads=2, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 2, stride=2, pad_mode="pad", padding=0, has_bias=True)
        self.blocks = nn.SequentialCell(Swin(c, heads, 0), Swin(c, heads, M // 2))
        self.reduce = nn.Dense(4 * c, 2 * c, has_bias=False)
        self.ln = nn.LayerNorm([4 * c], epsilon=1e-5)
        self.fc = nn.Dense(2 * c, classes)

    def construct(self, x):
        x = self.stem(x)
        b, c = x.shape[:2]
        x = self.blocks(x.reshape(b, c, -1).transpose(0, 2, 1))
        half = SIZE // 2
        x = x.reshape(b, half, 2, half, 2, c).transpose(0, 1, 3, 4, 2, 5)
        x = self.reduce(self.ln(x.reshape(b, half * half, 4 * c)))
        return self.fc(x.mean(1))
