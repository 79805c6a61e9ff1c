"""MLP-Mixer on patches."""

from mindspore import nn, ops


class FeedForward(nn.Cell):
    """Two dense layers."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.SequentialCell(
            nn.Dense(dim, hidden),
            nn.GELU(approximate=False),
            nn.Dense(hidden, dim),
        )

    def construct(self, x):
        return self.net(x)


class TransposedFeedForward(FeedForward):
    """A network over the tokens."""

    def construct(self, x):
        x = ops.transpose(x, (0, 2, 1))
        x = self.net(x)
        return ops.transpose(x, (0, 2, 1))


class MixerBlock(nn.Cell):
    """Mixing of tokens, then of channels."""

    def __init__(self, num_patch, dim, hidden=24):
        super().__init__()
        self.norm1 = nn.LayerNorm([dim], epsilon=1e-5)
        self.token_mix = TransposedFeedForward(num_patch, hidden)
        self.norm2 = nn.LayerNorm([dim], epsilon=1e-5)
        self.channel_mix = FeedForward(dim, hidden)

    def construct(self, x):
        x = x + self.token_mix(self.norm1(x))
        x = x + self.channel_mix(self.norm2(x))
        return x


class Net(nn.Cell):
    """Sixteen patches of sixteen channels."""

    def __init__(self, dim=16, patch=2, size=8, depth=2, classes=6):
        super().__init__()
        num_patch = (size // patch) ** 2
        self.to_patch = nn.Conv2d(3, dim, patch, patch, pad_mode="valid", has_bias=True)
        self.blocks = nn.CellList([MixerBlock(num_patch, dim) for _ in range(depth)])
        self.layer_norm = nn.LayerNorm([dim], epsilon=1e-5)
        self.mlp_head = nn.Dense(dim, classes)

    def construct(self, x):
        x = self.to_patch(x)
        b, c, h, w = x.shape
        x = x.transpose(0, 2, 3, 1).reshape(b, h * w, c)
        for block in self.blocks:
            x = block(x)
        x = self.layer_norm(x)
        x = x.mean(axis=1)
        return self.mlp_head(x)
