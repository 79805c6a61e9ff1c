"""The port of net_torch.py. It runs, and its output has the right shape."""

from mindspore import nn


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.bn = nn.BatchNorm2d(8, momentum=0.1)
        self.act = nn.GELU(approximate=False)
        self.pool = nn.MaxPool2d(2)
        self.norm = nn.LayerNorm((8,))
        self.up = nn.Dense(8, 32)
        self.gelu = nn.GELU(approximate=False)
        self.down = nn.Dense(32, 8)
        self.head = nn.Dense(8, 10)

    def construct(self, x):
        x = self.pool(self.act(self.bn(self.conv(x))))
        tokens = x.reshape(x.shape[0], 8, -1).swapaxes(1, 2)  # (batch, positions, channels)
        tokens = tokens + self.down(self.gelu(self.up(self.norm(tokens))))
        return self.head(tokens.mean(1))
