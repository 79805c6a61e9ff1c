"""MLP-Mixer that keeps channels before tokens; its dense layers are matrix products."""

from mindspore import mint, nn, ops


class Mixing(nn.Cell):
    """Weights of both networks and norms of a block, in PyTorch's order."""

    def __init__(self, tokens, dim):
        super().__init__()
        self.ln_a = nn.LayerNorm([dim], epsilon=1e-5)
        self.a1, self.a2 = nn.Dense(tokens, 24), nn.Dense(24, tokens)
        self.ln_b = nn.LayerNorm([dim], epsilon=1e-5)
        self.b1, self.b2 = nn.Dense(dim, 24), nn.Dense(24, dim)

    def construct(self, x):
        y = self.ln_a(x.swapaxes(1, 2)).swapaxes(1, 2)
        x = x + self.a2(ops.gelu(self.a1(y)))
        y = self.ln_b(x.swapaxes(1, 2)).swapaxes(1, 2)
        y = mint.matmul(self.b1.weight, y) + self.b1.bias[:, None]
        y = 0.5 * y * (1 + mint.erf(y * 2**-0.5))
        return x + mint.matmul(self.b2.weight, y) + self.b2.bias[:, None]


class Net(nn.Cell):
    """Sixteen patches of sixteen channels."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 2, stride=2, pad_mode="valid", has_bias=True)
        self.body = nn.SequentialCell(Mixing(16, 16), Mixing(16, 16))
        self.norm = nn.LayerNorm([16], epsilon=1e-5)
        self.head = nn.Dense(16, 6)

    def construct(self, x):
        x = ops.flatten(self.stem(x), start_dim=2)
        x = self.norm(mint.transpose(self.body(x), 1, 2))
        return self.head(mint.sum(x, 1) / 16)
