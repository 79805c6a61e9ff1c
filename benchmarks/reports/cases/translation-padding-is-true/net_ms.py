from mindspore import nn, ops


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scaling = heads, (width // heads) ** -0.5
        self.q, self.k, self.v = nn.Dense(width, width), nn.Dense(width, width), nn.Dense(width, width)
        self.out_proj = nn.Dense(width, width)

    def construct(self, x, key_padding_mask):
        b, t, w = x.shape
        q, k, v = (p(x).reshape(b, t, self.heads, -1).swapaxes(1, 2) for p in (self.q, self.k, self.v))
        score = ops.matmul(q * self.scaling, k.swapaxes(2, 3))
        score = ops.masked_fill(score, key_padding_mask[:, None, None], float("-inf"))
        y = ops.matmul(ops.softmax(score, -1), v)
        return self.out_proj(y.swapaxes(1, 2).reshape(b, t, w))


class Net(nn.Cell):
    def __init__(self, vocab=30, width=32, heads=4, pad=0):
        super().__init__()
        self.pad, self.embed = pad, nn.Embedding(vocab, width)
        self.attn = Attention(width, heads)
        self.norm, self.head = nn.LayerNorm((width,), epsilon=1e-5), nn.Dense(width, vocab)

    def construct(self, ids):
        x = self.embed(ids)
        return self.head(self.norm(x + self.attn(x, ids == self.pad)))
