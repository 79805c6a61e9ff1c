import mindspore as ms
from mindspore import nn, ops


def rotate_half(x):
    a, b = ops.chunk(x, 2, -1)
    return ops.cat([-b, a], -1)


class Net(nn.Cell):
    def __init__(self, vocab=40, width=32, heads=4):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.embed = nn.Embedding(vocab, width)
        self.norm = nn.LayerNorm((width,), epsilon=1e-5)
        self.qkv, self.out = nn.Dense(width, 3 * width), nn.Dense(width, width)
        self.head = nn.Dense(width, vocab)

    def table(self, t):
        rates = 1.0 / 10000 ** (ops.arange(0, self.size, 2).astype(ms.float32) / self.size)
        angles = ops.arange(t).astype(ms.float32)[:, None] * rates[None]
        angles = ops.repeat_interleave(angles, 2, -1)
        return ops.cos(angles), ops.sin(angles)

    def construct(self, ids):
        b, t = ids.shape
        x = self.embed(ids)
        qkv = self.qkv(self.norm(x)).reshape(b, t, 3, self.heads, self.size)
        q, k, v = (y.squeeze(0) for y in ops.split(qkv.transpose(2, 0, 3, 1, 4), 1))
        cos, sin = self.table(t)
        q, k = (y * cos + rotate_half(y) * sin for y in (q, k))
        score = ops.matmul(q, k.swapaxes(2, 3)) / self.size**0.5
        future = ops.triu(ops.ones((t, t)), 1).astype(ms.bool_)
        score = ops.masked_fill(score, future, float("-inf"))
        y = ops.matmul(ops.softmax(score, -1), v)
        return self.head(x + self.out(y.swapaxes(1, 2).reshape(b, t, -1)))
