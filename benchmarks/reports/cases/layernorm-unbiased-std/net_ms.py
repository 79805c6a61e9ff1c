import mindspore as ms
from mindspore import nn, ops


class LayerNorm(nn.Cell):
    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2, self.b_2 = ms.Parameter(ops.ones(features)), ms.Parameter(ops.zeros(features))
        self.eps = eps

    def construct(self, x):
        mean = x.mean(-1, keep_dims=True)
        std = ops.std(x, -1, 1, True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class Net(nn.Cell):
    def __init__(self, width=12, hidden=24):
        super().__init__()
        self.norm1, self.norm2 = LayerNorm(width), LayerNorm(width)
        self.w_1, self.w_2 = nn.Dense(width, hidden), nn.Dense(hidden, width)

    def construct(self, x):
        x = x + self.w_2(ops.relu(self.w_1(self.norm1(x))))
        return self.norm2(x)
