import mindspore as ms
import numpy as np
from mindspore import nn, ops


class Attention(nn.Cell):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.scale = dim**-0.5
        self.to_qkv = nn.Dense(dim, 3 * dim, has_bias=False)
        self.to_out = nn.Dense(dim, dim)

    def construct(self, x):
        b, n, d = x.shape
        q, k, v = (
            y.reshape(b, n, self.heads, -1).swapaxes(1, 2) for y in ops.chunk(self.to_qkv(x), 3, -1)
        )
        weights = ops.softmax(ops.matmul(q, k.swapaxes(2, 3)) * self.scale, -1)
        return self.to_out(ops.matmul(weights, v).swapaxes(1, 2).reshape(b, n, d))


class Net(nn.Cell):
    def __init__(self, dim=48, heads=6, patch=4, image=16, classes=10):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, patch, pad_mode="valid", has_bias=True)
        rng = np.random.default_rng(0)
        self.cls = ms.Parameter(rng.normal(size=(1, 1, dim)).astype("float32"))
        count = (image // patch) ** 2 + 1
        self.pos = ms.Parameter(rng.normal(size=(1, count, dim)).astype("float32"))
        self.norm1, self.attn = nn.LayerNorm((dim,), epsilon=1e-5), Attention(dim, heads)
        self.norm2 = nn.LayerNorm((dim,), epsilon=1e-5)
        self.mlp = nn.SequentialCell(
            nn.Dense(dim, 2 * dim), nn.GELU(approximate=False), nn.Dense(2 * dim, dim)
        )
        self.head = nn.Dense(dim, classes)

    def construct(self, image):
        x = self.patch(image)
        x = x.reshape(x.shape[0], x.shape[1], -1).swapaxes(1, 2)
        x = ops.cat([ops.tile(self.cls, (x.shape[0], 1, 1)), x], 1) + self.pos
        x = x + self.attn(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return self.head(x[:, 0])
