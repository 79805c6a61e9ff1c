import mindspore as ms
from mindspore import nn, ops


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k = nn.Dense(width, width, has_bias=False), nn.Dense(width, width, has_bias=False)
        self.v, self.o = nn.Dense(width, width, has_bias=False), nn.Dense(width, width, has_bias=False)

    def split(self, x):
        return x.reshape(x.shape[0], x.shape[1], self.heads, -1).swapaxes(1, 2)

    def construct(self, x, memory, position_bias, mask):
        q, k, v = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        scores = ops.matmul(q, k.swapaxes(2, 3)) + position_bias + mask
        y = ops.matmul(ops.softmax(scores, -1), v).swapaxes(1, 2)
        return self.o(y.reshape(x.shape))


class Net(nn.Cell):
    def __init__(self, vocab=30, width=24, heads=4):
        super().__init__()
        self.shared = nn.Embedding(vocab, width)
        self.relative_attention_bias = nn.Embedding(8, heads)
        self.SelfAttention, self.EncDecAttention = Attention(width, heads), Attention(width, heads)
        self.lm_head = nn.Dense(width, vocab, has_bias=False)

    def positions(self, queries, keys):
        back = ops.arange(queries)[:, None] - ops.arange(keys)[None]
        bias = self.relative_attention_bias(ops.clamp(back, 0, 7)).transpose(2, 0, 1)
        return bias, (back < 0).astype(ms.float32) * -1e9

    def construct(self, ids, memory):
        x = self.shared(ids)
        bias, mask = self.positions(ids.shape[1], ids.shape[1])
        x = x + self.SelfAttention(x, x, bias, mask)
        bias, _ = self.positions(ids.shape[1], memory.shape[1])
        return self.lm_head(x + self.EncDecAttention(x, memory, bias, 0.0))
