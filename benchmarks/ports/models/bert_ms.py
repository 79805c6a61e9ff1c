"""A small BERT classifier, attention by hand."""

import math

from mindspore import dtype as mstype
from mindspore import nn, ops


class SelfAttention(nn.Cell):
    """Multi-head self-attention with an additive mask."""

    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Dense(d, 3 * d)
        self.out = nn.Dense(d, d)

    def construct(self, x, mask):
        b, t, d = x.shape
        head_dim = d // self.heads
        qkv = self.qkv(x).reshape(b, t, 3, self.heads, head_dim).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = ops.matmul(q, k.swapaxes(-1, -2)) / math.sqrt(head_dim)
        weights = ops.softmax(scores + mask, axis=-1)
        context = ops.matmul(weights, v)
        context = context.swapaxes(1, 2).reshape(b, t, d)
        return self.out(context)


class Layer(nn.Cell):
    """One encoder layer, norms after the residual sums."""

    def __init__(self, d, heads, ff):
        super().__init__()
        self.attention = SelfAttention(d, heads)
        self.intermediate = nn.Dense(d, ff)
        self.output = nn.Dense(ff, d)
        self.attention_norm = nn.LayerNorm([d], epsilon=1e-5)
        self.output_norm = nn.LayerNorm([d], epsilon=1e-5)
        self.act = nn.GELU(approximate=False)

    def construct(self, x, mask):
        x = self.attention_norm(x + self.attention(x, mask))
        return self.output_norm(x + self.output(self.act(self.intermediate(x))))


class Net(nn.Cell):
    """Token, position and segment embeddings, two encoder layers, pooler, classifier."""

    def __init__(self, vocab=30, d=16, heads=4, ff=32, layers=2, max_len=12, classes=3):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, d)
        self.position_embeddings = nn.Embedding(max_len, d)
        self.token_type_embeddings = nn.Embedding(2, d)
        self.norm = nn.LayerNorm([d], epsilon=1e-12)
        self.layers = nn.CellList([Layer(d, heads, ff) for _ in range(layers)])
        self.pooler = nn.Dense(d, d)
        self.classifier = nn.Dense(d, classes)

    def construct(self, ids, segments, lengths):
        t = ids.shape[1]
        positions = ops.arange(t)
        x = self.word_embeddings(ids)
        x = x + self.position_embeddings(positions)
        x = x + self.token_type_embeddings(segments)
        x = self.norm(x)
        valid = positions[None, :] < lengths[:, None] + 3
        mask = (1.0 - valid.astype(mstype.float32)) * -1e9
        mask = mask[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(ops.tanh(self.pooler(x[:, 0])))
