"""The small VGG, every layer written out."""

from mindspore import nn, ops


class ConvBnRelu(nn.Cell):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, pad_mode="same", has_bias=False)
        self.norm = nn.BatchNorm2d(cout, eps=0.001)

    def construct(self, x):
        return ops.relu(self.norm(self.conv(x)))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.block1 = ConvBnRelu(3, 8)
        self.block2 = ConvBnRelu(8, 8)
        self.block3 = ConvBnRelu(8, 16)
        self.dense1 = nn.Dense(64, 24, activation="relu")
        self.dense2 = nn.Dense(24, 5)

    def construct(self, x):
        x = self.block2(self.block1(x))
        x = ops.max_pool2d(x, 2)
        x = ops.max_pool2d(self.block3(x), 2)
        x = ops.avg_pool2d(x, 2, 2)
        x = x.reshape((x.shape[0], -1))
        return self.dense2(self.dense1(x))
