import mindspore as ms
from mindspore import nn, ops


class RMSNorm(nn.Cell):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = ms.Parameter(ops.ones(width)), eps

    def construct(self, x):
        return x * ops.rsqrt(ops.square(x).mean(-1, keep_dims=True) + self.eps) * self.weight


class Net(nn.Cell):
    def __init__(self, vocab=40, width=32, heads=8, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.embed, self.norm = nn.Embedding(vocab, width), RMSNorm(width)
        self.q_proj = nn.Dense(width, width, has_bias=False)
        self.k_proj = nn.Dense(width, groups * self.size, has_bias=False)
        self.v_proj = nn.Dense(width, groups * self.size, has_bias=False)
        self.o_proj = nn.Dense(width, width, has_bias=False)
        self.lm_head = nn.Dense(width, vocab, has_bias=False)

    def construct(self, ids):
        b, t = ids.shape
        x = self.embed(ids)
        h = self.norm(x)
        q = self.q_proj(h).reshape(b, t, self.heads, -1).swapaxes(1, 2)
        k = self.k_proj(h).reshape(b, t, self.groups, -1).swapaxes(1, 2)
        v = self.v_proj(h).reshape(b, t, self.groups, -1).swapaxes(1, 2)
        times = self.heads // self.groups
        k, v = ops.tile(k, (1, times, 1, 1)), ops.tile(v, (1, times, 1, 1))
        score = ops.matmul(q, k.swapaxes(2, 3)) / self.size**0.5
        future = ops.triu(ops.ones((t, t)), 1).astype(ms.bool_)
        weights = ops.softmax(ops.masked_fill(score, future, float("-inf")), -1)
        y = ops.matmul(weights, v).swapaxes(1, 2).reshape(b, t, -1)
        return self.lm_head(x + self.o_proj(y))
