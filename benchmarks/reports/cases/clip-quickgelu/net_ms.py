import mindspore as ms
from mindspore import nn, ops


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.in_proj, self.out_proj = heads, nn.Dense(width, 3 * width), nn.Dense(width, width)

    def construct(self, x, mask):
        b, t, w = x.shape
        q, k, v = ops.chunk(self.in_proj(x), 3, -1)
        q, k, v = (y.reshape(b, t, self.heads, -1).swapaxes(1, 2) for y in (q, k, v))
        score = ops.matmul(q * (w // self.heads) ** -0.5, k.swapaxes(2, 3)) + mask
        y = ops.matmul(ops.softmax(score, -1), v)
        return self.out_proj(y.swapaxes(1, 2).reshape(b, t, w))


class Block(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.attn = Attention(width, heads)
        self.ln_1 = nn.LayerNorm((width,), epsilon=1e-5)
        self.ln_2 = nn.LayerNorm((width,), epsilon=1e-5)
        self.c_fc, self.c_proj = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.gelu = nn.GELU(approximate=False)

    def construct(self, x, mask):
        x = x + self.attn(self.ln_1(x), mask)
        return x + self.c_proj(self.gelu(self.c_fc(self.ln_2(x))))


class Net(nn.Cell):
    def __init__(self, vocab=60, width=32, heads=4, length=12):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, width)
        self.positional_embedding = nn.Embedding(length, width)
        self.resblocks = nn.CellList([Block(width, heads) for _ in range(2)])
        self.ln_final = nn.LayerNorm((width,), epsilon=1e-5)
        self.text_projection = nn.Dense(width, 16, has_bias=False)

    def construct(self, ids):
        t = ids.shape[1]
        x = self.token_embedding(ids) + self.positional_embedding(ops.arange(t))
        mask = ops.triu(ops.full((t, t), -1e9, dtype=ms.float32), 1)
        for block in self.resblocks:
            x = block(x, mask)
        return self.text_projection(self.ln_final(x)[:, -1])
