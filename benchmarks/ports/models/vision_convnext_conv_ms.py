"""ConvNeXt with 1x1 convolutions for the pointwise layers; nn.LayerNorm on moved axes."""

from mindspore import Parameter, nn, ops
from mindspore.common.initializer import Constant, initializer


class ChannelNorm(nn.Cell):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm((dim,), -1, -1, "ones", "zeros", 1e-6)

    def construct(self, x):
        return ops.transpose(self.ln(ops.transpose(x, (0, 2, 3, 1))), (0, 3, 1, 2))


class ConvNeXtBlock(nn.Cell):
    def __init__(self, c):
        super().__init__()
        self.depth = nn.Conv2d(c, c, 7, pad_mode="same", group=c, has_bias=True)
        self.ln = ChannelNorm(c)
        self.up = nn.Conv2d(c, 4 * c, 1, has_bias=True)
        self.down = nn.Conv2d(4 * c, c, 1, has_bias=True)
        self.layer_scale = Parameter(initializer(Constant(0.5), (c, 1, 1)))

    def construct(self, x):
        y = self.ln(self.depth(x))
        y = self.down(ops.gelu(self.up(y), approximate="none"))
        return x + y * self.layer_scale


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 12, 2, 2, has_bias=True)
        self.patch_norm = ChannelNorm(12)
        self.block1 = ConvNeXtBlock(12)
        self.block2 = ConvNeXtBlock(12)
        self.mid_norm = ChannelNorm(12)
        self.reduce = nn.Conv2d(12, 16, 2, 2, has_bias=True)
        self.block3 = ConvNeXtBlock(16)
        self.final_norm = nn.LayerNorm((16,), epsilon=1e-6)
        self.fc = nn.Dense(16, 5)

    def construct(self, x):
        x = self.patch_norm(self.patch(x))
        x = self.block2(self.block1(x))
        x = self.block3(self.reduce(self.mid_norm(x)))
        return self.fc(self.final_norm(ops.mean(x, axis=(2, 3))))
