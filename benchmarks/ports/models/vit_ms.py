"""A small vision transformer on timm's plan."""

import mindspore as ms
from mindspore import Parameter, nn, ops
from mindspore.common.initializer import TruncatedNormal, initializer


class Attention(nn.Cell):
    """Self-attention, q, k and v in one Dense."""

    def __init__(self, dim, heads):
        super().__init__()
        self.num_heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Dense(dim, dim * 3)
        self.proj = nn.Dense(dim, dim)

    def construct(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads)
        q, k, v = ops.unstack(qkv.transpose(2, 0, 3, 1, 4), axis=0)
        attn = ops.matmul(q * self.scale, k.swapaxes(-2, -1))
        attn = ops.softmax(attn, axis=-1)
        x = ops.matmul(attn, v).swapaxes(1, 2).reshape(B, N, C)
        return self.proj(x)


class Mlp(nn.Cell):
    """Feed-forward network."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Dense(dim, hidden)
        self.act = nn.GELU(approximate=False)
        self.fc2 = nn.Dense(hidden, dim)

    def construct(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Cell):
    """Pre-norm block."""

    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.norm1 = nn.LayerNorm((dim,), epsilon=1e-6)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm((dim,), epsilon=1e-6)
        self.mlp = Mlp(dim, hidden)

    def construct(self, x):
        x = x + self.attn(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return x


class Net(nn.Cell):
    """Patches, class token, positions, blocks, head."""

    def __init__(self, size=12, patch=4, dim=16, heads=2, hidden=32, depth=2, classes=5):
        super().__init__()
        n = (size // patch) ** 2
        init = TruncatedNormal(0.02)
        self.cls_token = Parameter(initializer(init, (1, 1, dim), ms.float32), name="cls")
        self.pos_embed = Parameter(initializer(init, (1, n + 1, dim), ms.float32), name="pos")
        self.patch_embed = nn.Conv2d(3, dim, patch, stride=patch, pad_mode="valid", has_bias=True)
        self.blocks = nn.SequentialCell([Block(dim, heads, hidden) for _ in range(depth)])
        self.norm = nn.LayerNorm((dim,), epsilon=1e-6)
        self.head = nn.Dense(dim, classes)

    def construct(self, x):
        x = self.patch_embed(x)
        b, c, h, w = x.shape
        x = x.reshape(b, c, h * w).swapaxes(1, 2)
        cls_tokens = ops.tile(self.cls_token, (b, 1, 1))
        x = ops.concat((cls_tokens, x), axis=1)
        x = x + self.pos_embed
        x = self.blocks(x)
        x = self.norm(x)
        return self.head(x[:, 0])
