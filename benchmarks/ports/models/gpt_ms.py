"""A small GPT after nanoGPT, with its loss and optimizer."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class CausalSelfAttention(nn.Cell):
    """Causal self-attention with a stored mask."""

    def __init__(self, d, heads, block_size):
        super().__init__()
        self.n_head = heads
        self.n_embd = d
        self.c_attn = nn.Dense(d, 3 * d, has_bias=False)
        self.c_proj = nn.Dense(d, d)
        self.tril = Tensor(np.tril(np.ones((block_size, block_size))), ms.bool_)

    def construct(self, x):
        b, t, c = x.shape
        q, k, v = ops.split(self.c_attn(x), self.n_embd, axis=2)
        hs = c // self.n_head
        q = q.view(b, t, self.n_head, hs).swapaxes(1, 2)
        k = k.view(b, t, self.n_head, hs).swapaxes(1, 2)
        v = v.view(b, t, self.n_head, hs).swapaxes(1, 2)
        att = ops.bmm(q, k.swapaxes(-2, -1)) * (1.0 / math.sqrt(hs))
        att = ops.masked_fill(att, ops.logical_not(self.tril[:t, :t]), -1e9)
        att = ops.softmax(att, axis=-1)
        y = ops.bmm(att, v).swapaxes(1, 2).reshape(b, t, c)
        return self.c_proj(y)


class MLP(nn.Cell):
    """Feed-forward network."""

    def __init__(self, d):
        super().__init__()
        self.c_fc = nn.Dense(d, 4 * d)
        self.c_proj = nn.Dense(4 * d, d)

    def construct(self, x):
        return self.c_proj(ops.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Cell):
    """Pre-norm block."""

    def __init__(self, d, heads, block_size):
        super().__init__()
        self.ln_1 = nn.LayerNorm([d], epsilon=1e-5)
        self.attn = CausalSelfAttention(d, heads, block_size)
        self.ln_2 = nn.LayerNorm([d], epsilon=1e-5)
        self.mlp = MLP(d)

    def construct(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


class Net(nn.Cell):
    """Two blocks and a head that shares the token table."""

    def __init__(self, vocab=6, block_size=10, d=16, heads=2, layers=2):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.wpe = nn.Embedding(block_size, d)
        self.h = nn.CellList([Block(d, heads, block_size) for _ in range(layers)])
        self.ln_f = nn.LayerNorm([d], epsilon=1e-5)
        self.head = self.wte.embedding_table

    def construct(self, ids):
        pos = ops.arange(ids.shape[1])
        x = self.wte(ids) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        return ops.matmul(x, self.head.T)


def loss(logits, targets):
    """Cross-entropy of each token; 0 is padding."""
    labels = targets.reshape(-1).astype(ms.int32)
    return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels, ignore_index=0)


class WarmAdamW(nn.Optimizer):
    """AdamW as PyTorch computes it, with a linear warm-up."""

    def __init__(self, parameters, lr, warmup, betas, eps, weight_decay):
        super().__init__(lr, parameters)
        self.lr, self.warmup, self.betas, self.eps = lr, warmup, betas, eps
        self.m = self.parameters.clone(prefix="exp_avg", init="zeros")
        self.v = self.parameters.clone(prefix="exp_avg_sq", init="zeros")
        self.decay = [weight_decay if p.ndim >= 2 else 0.0 for p in self.parameters]
        self.count = Parameter(Tensor(0.0, ms.float32), name="count")

    def construct(self, gradients):
        b1, b2 = self.betas
        self.count += 1
        t = float(self.count.asnumpy())
        lr = self.lr * min(1.0, t / self.warmup)
        c1, c2 = 1 - b1**t, 1 - b2**t
        for p, g, m, v, wd in zip(self.parameters, gradients, self.m, self.v, self.decay):
            ops.assign(m, b1 * m + (1 - b1) * g)
            ops.assign(v, b2 * v + (1 - b2) * g * g)
            denom = ops.sqrt(v) / math.sqrt(c2) + self.eps
            ops.assign(p, p * (1 - lr * wd) - lr * (m / c1) / denom)
        return True


def optimizer(parameters):
    """Only matrices are decayed."""
    return WarmAdamW(parameters, lr=1e-2, warmup=4, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1)
