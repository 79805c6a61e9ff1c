from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm((width,), epsilon=1e-5)
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)

    def bias_gelu(self, x):
        return x * 0.5 * (1.0 + ops.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))

    def construct(self, x):
        return x + self.down(self.bias_gelu(self.up(self.norm(x))))
