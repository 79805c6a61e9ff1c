"""A small Llama; the rotation without complex numbers."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class RMSNorm(nn.Cell):
    """Root mean square norm."""

    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = Parameter(ops.ones(dim, ms.float32))

    def construct(self, x):
        variance = ops.square(x).mean(-1, keep_dims=True)
        scale = ops.rsqrt(variance + self.eps)
        return x * scale * self.weight


def apply_rotary(x, cos, sin):
    """Rotate pairs (0, 1), (2, 3), ... of the last axis."""
    a, b = x[..., 0::2], x[..., 1::2]
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    return ops.stack((a * cos - b * sin, a * sin + b * cos), -1).reshape(x.shape)


def repeat_kv(x, n):
    """Each key/value head serves n neighbouring query heads."""
    b, t, h, d = x.shape
    x = ops.broadcast_to(x[:, :, :, None, :], (b, t, h, n, d))
    return x.reshape(b, t, h * n, d)


class Attention(nn.Cell):
    """Grouped-query attention."""

    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        self.heads = heads
        self.kv_heads = kv_heads
        self.size = dim // heads
        self.wq = nn.Dense(dim, heads * self.size, has_bias=False)
        self.wk = nn.Dense(dim, kv_heads * self.size, has_bias=False)
        self.wv = nn.Dense(dim, kv_heads * self.size, has_bias=False)
        self.wo = nn.Dense(heads * self.size, dim, has_bias=False)

    def construct(self, x, cos, sin, mask):
        b, t, _ = x.shape
        q = self.wq(x).reshape(b, t, self.heads, self.size)
        k = self.wk(x).reshape(b, t, self.kv_heads, self.size)
        v = self.wv(x).reshape(b, t, self.kv_heads, self.size)
        q = apply_rotary(q, cos, sin)
        k = apply_rotary(k, cos, sin)
        groups = self.heads // self.kv_heads
        k = repeat_kv(k, groups)
        v = repeat_kv(v, groups)
        q, k, v = q.transpose(0, 2, 1, 3), k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
        scores = ops.matmul(q, k.transpose(0, 1, 3, 2)) / np.sqrt(self.size).item() + mask
        probs = ops.softmax(scores, axis=-1)
        y = ops.matmul(probs, v)
        return self.wo(y.transpose(0, 2, 1, 3).reshape(b, t, -1))


class FeedForward(nn.Cell):
    """SwiGLU."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Dense(dim, hidden, has_bias=False)
        self.w2 = nn.Dense(hidden, dim, has_bias=False)
        self.w3 = nn.Dense(dim, hidden, has_bias=False)

    def construct(self, x):
        gate, up = self.w1(x), self.w3(x)
        return self.w2(ops.silu(gate) * up)


class Block(nn.Cell):
    """Pre-norm block."""

    def __init__(self, dim, heads, kv_heads, hidden):
        super().__init__()
        self.attention = Attention(dim, heads, kv_heads)
        self.feed_forward = FeedForward(dim, hidden)
        self.attention_norm = RMSNorm(dim)
        self.ffn_norm = RMSNorm(dim)

    def construct(self, x, cos, sin, mask):
        h = x + self.attention(self.attention_norm(x), cos, sin, mask)
        out = h + self.feed_forward(self.ffn_norm(h))
        return out


class Net(nn.Cell):
    """Two blocks; logits of the last position."""

    def __init__(self, vocab=20, dim=32, heads=4, kv_heads=2, hidden=24, layers=2, max_len=12):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.layers = nn.CellList([Block(dim, heads, kv_heads, hidden) for _ in range(layers)])
        self.norm = RMSNorm(dim)
        self.output = nn.Dense(dim, vocab, has_bias=False)
        size = dim // heads
        theta = 10000.0
        freqs = 1.0 / theta ** (np.arange(0, size, 2) / size)
        angles = np.outer(np.arange(max_len), freqs)
        self.cos = Tensor(np.cos(angles), ms.float32)
        self.sin = Tensor(np.sin(angles), ms.float32)

    def construct(self, tokens):
        t = tokens.shape[1]
        mask = Tensor(np.triu(np.full((t, t), -1e30, np.float32), k=1))
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, self.cos[:t], self.sin[:t], mask)
        h = self.norm(h)
        return self.output(h)[:, -1]
