"""A small translation transformer after the original paper (norms last)."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import XavierUniform, initializer


def position_encoding(length, d):
    """Sine on even and cosine on odd channels."""
    table = np.zeros((length, d), np.float32)
    position = np.arange(length)[:, None]
    div = np.exp(np.arange(0, d, 2) * (-math.log(10000.0) / d))
    table[:, 0::2] = np.sin(position * div)
    table[:, 1::2] = np.cos(position * div)
    return Tensor(table)


class MultiHeadAttention(nn.Cell):
    """Attention with one projection matrix for q, k and v."""

    def __init__(self, d, heads):
        super().__init__()
        self.d, self.heads = d, heads
        self.in_proj_weight = Parameter(initializer(XavierUniform(), [3 * d, d], ms.float32))
        self.out_proj = nn.Dense(d, d, has_bias=False)

    def project(self, x, start):
        y = ops.matmul(x, self.in_proj_weight[start : start + self.d].T)
        y = y.reshape(x.shape[0], x.shape[1], self.heads, self.d // self.heads)
        return y.transpose(0, 2, 1, 3)

    def construct(self, query, key, value, mask):
        q = self.project(query, 0)
        k = self.project(key, self.d)
        v = self.project(value, 2 * self.d)
        scores = ops.matmul(q, k.transpose(0, 1, 3, 2)) / math.sqrt(self.d // self.heads)
        scores = scores.masked_fill(mask, -1e9)
        out = ops.matmul(ops.softmax(scores, -1), v)
        out = out.transpose(0, 2, 1, 3).reshape(query.shape)
        return self.out_proj(out)


class EncoderLayer(nn.Cell):
    """Self-attention and feed-forward."""

    def __init__(self, d, heads, ff):
        super().__init__()
        self.self_attn = MultiHeadAttention(d, heads)
        self.ff = nn.SequentialCell(nn.Dense(d, ff), nn.ReLU(), nn.Dense(ff, d))
        self.norm1 = nn.LayerNorm([d], epsilon=1e-5)
        self.norm2 = nn.LayerNorm([d], epsilon=1e-5)

    def construct(self, x, pad):
        x = self.norm1(x + self.self_attn(x, x, x, pad))
        x = self.norm2(x + self.ff(x))
        return x


class DecoderLayer(nn.Cell):
    """Causal self-attention, attention to the memory, feed-forward."""

    def __init__(self, d, heads, ff):
        super().__init__()
        self.self_attn = MultiHeadAttention(d, heads)
        self.cross_attn = MultiHeadAttention(d, heads)
        self.ff = nn.SequentialCell(nn.Dense(d, ff), nn.ReLU(), nn.Dense(ff, d))
        self.norm1 = nn.LayerNorm([d], epsilon=1e-5)
        self.norm2 = nn.LayerNorm([d], epsilon=1e-5)
        self.norm3 = nn.LayerNorm([d], epsilon=1e-5)

    def construct(self, x, memory, causal, pad):
        h = self.norm1(x + self.self_attn(x, x, x, causal))
        h = self.norm2(h + self.cross_attn(h, memory, memory, pad))
        return self.norm3(h + self.ff(h))


class Net(nn.Cell):
    """One encoder and two decoder layers."""

    def __init__(self, source=16, target=5, d=16, heads=4, ff=24):
        super().__init__()
        self.scale = math.sqrt(d)
        self.src_embed = nn.Embedding(source, d)
        self.tgt_embed = nn.Embedding(target, d)
        self.pe = position_encoding(16, d)
        self.encoder = EncoderLayer(d, heads, ff)
        self.decoder = nn.CellList([DecoderLayer(d, heads, ff) for _ in range(2)])
        self.generator = nn.Dense(d, target)

    def construct(self, source, lengths, target):
        s, t = source.shape[1], target.shape[1]
        pad = (ops.arange(s)[None, :] >= lengths[:, None] + 3)[:, None, None, :]
        causal = Tensor(np.triu(np.ones((t, t)), 1) > 0)
        src = self.src_embed(source) * self.scale + self.pe[:s]
        memory = self.encoder(src, pad)
        x = self.tgt_embed(target) * self.scale + self.pe[:t]
        for layer in self.decoder:
            x = layer(x, memory, causal, pad)
        return self.generator(x)


def loss(logits, targets, smoothing=0.1, pad=0):
    """Label smoothing over the other classes but padding, averaged over the tokens."""
    n = logits.shape[-1]
    logp = ops.log_softmax(logits.reshape(-1, n), axis=-1)
    labels = targets.reshape(-1).astype(ms.int32)
    hot = ops.one_hot(labels, n, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
    smooth = hot * (1.0 - smoothing) + (1 - hot) * smoothing / (n - 2)
    columns = (ops.arange(n) != pad).astype(ms.float32)
    keep = (labels != pad).astype(ms.float32)
    per_token = -(smooth * columns * logp).sum(axis=-1)
    return (per_token * keep).sum() / keep.sum()


class NoamAdam(nn.Optimizer):
    """Adam with the learning rate of the paper."""

    def __init__(self, parameters, d, warmup, factor, betas=(0.9, 0.98), eps=1e-9):
        super().__init__(0.001, parameters)
        self.model_size, self.warmup, self.factor = d, warmup, factor
        self.beta1, self.beta2 = betas
        self.eps = eps
        self.t = 0
        self.exp_avg = self.parameters.clone(prefix="m", init="zeros")
        self.exp_avg_sq = self.parameters.clone(prefix="v", init="zeros")

    def construct(self, grads):
        self.t += 1
        rate = min(self.t**-0.5, self.t * self.warmup**-1.5)
        rate = self.factor * self.model_size**-0.5 * rate
        for p, g, m, v in zip(self.parameters, grads, self.exp_avg, self.exp_avg_sq):
            ops.assign(m, self.beta1 * m + (1 - self.beta1) * g)
            ops.assign(v, self.beta2 * v + (1 - self.beta2) * ops.square(g))
            m_hat = m / (1 - self.beta1**self.t)
            v_hat = v / (1 - self.beta2**self.t)
            ops.assign(p, p - rate * m_hat / (ops.sqrt(v_hat) + self.eps))
        return True


def optimizer(parameters):
    """Two steps of warm-up."""
    return NoamAdam(parameters, d=16, warmup=2, factor=0.05)
