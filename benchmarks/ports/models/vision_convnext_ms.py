"""ConvNeXt blocks with a channels-first LayerNorm and layer scale."""

import numpy as np
import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops


class LayerNorm2d(nn.Cell):
    """LayerNorm over the channels of (N, C, H, W)."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones(dim), ms.float32))
        self.bias = Parameter(Tensor(np.zeros(dim), ms.float32))
        self.eps = eps

    def construct(self, x):
        u = x.mean(1, keep_dims=True)
        s = ((x - u) ** 2).mean(1, keep_dims=True)
        x = (x - u) / ops.sqrt(s + self.eps)
        return self.weight.view(1, -1, 1, 1) * x + self.bias.view(1, -1, 1, 1)


class Block(nn.Cell):
    def __init__(self, dim, layer_scale_init_value=0.5):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, pad_mode="pad", padding=3, group=dim, has_bias=True)
        self.norm = nn.LayerNorm([dim], epsilon=1e-6)
        self.pwconv1 = nn.Dense(dim, 4 * dim)
        self.act = nn.GELU(approximate=False)
        self.pwconv2 = nn.Dense(4 * dim, dim)
        self.gamma = Parameter(layer_scale_init_value * ops.ones((dim,), ms.float32))

    def construct(self, x):
        shortcut = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1)
        x = self.norm(x)
        x = self.pwconv2(self.act(self.pwconv1(x)))
        x = self.gamma * x
        return shortcut + x.permute(0, 3, 1, 2)


class Net(nn.Cell):
    def __init__(self, num_classes=5, dims=(12, 16)):
        super().__init__()
        self.stem = nn.SequentialCell(
            nn.Conv2d(3, dims[0], 2, 2, pad_mode="valid", has_bias=True), LayerNorm2d(dims[0])
        )
        self.stage1 = nn.SequentialCell(Block(dims[0]), Block(dims[0]))
        self.down = nn.SequentialCell(
            LayerNorm2d(dims[0]),
            nn.Conv2d(dims[0], dims[1], 2, 2, pad_mode="valid", has_bias=True),
        )
        self.stage2 = nn.SequentialCell(Block(dims[1]))
        self.norm = nn.LayerNorm([dims[1]], epsilon=1e-6)
        self.head = nn.Dense(dims[1], num_classes)

    def construct(self, x):
        x = self.stem(x)
        x = self.stage1(x)
        x = self.down(x)
        x = self.stage2(x)
        x = self.norm(x.mean((-2, -1)))
        return self.head(x)
