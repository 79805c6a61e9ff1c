"""An Inception block with four branches and factorised convolutions."""

import mindspore as ms
from mindspore import nn, ops


class BasicConv2d(nn.Cell):
    def __init__(self, in_channels, out_channels, kernel_size, padding=0):
        super().__init__()
        mode = "pad" if padding else "valid"
        self.conv = nn.Conv2d(
            in_channels, out_channels, kernel_size, pad_mode=mode, padding=padding
        )
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def construct(self, x):
        return ops.relu(self.bn(self.conv(x)))


class Inception(nn.Cell):
    def __init__(self, in_channels):
        super().__init__()
        self.branch1x1 = BasicConv2d(in_channels, 6, 1)
        self.branch5x5_1 = BasicConv2d(in_channels, 4, 1)
        self.branch5x5_2 = BasicConv2d(4, 6, 5, padding=2)
        self.branch7x7_1 = BasicConv2d(in_channels, 4, 1)
        self.branch7x7_2 = BasicConv2d(4, 4, (1, 7), padding=(0, 0, 3, 3))
        self.branch7x7_3 = BasicConv2d(4, 6, (7, 1), padding=(3, 3, 0, 0))
        self.branch_pool = BasicConv2d(in_channels, 6, 1)
        self.avg_pool = nn.AvgPool2d(3, stride=1, pad_mode="pad", padding=1)

    def construct(self, x):
        branch1x1 = self.branch1x1(x)
        branch5x5 = self.branch5x5_2(self.branch5x5_1(x))
        branch7x7 = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        branch_pool = self.branch_pool(self.avg_pool(x))
        return ops.cat([branch1x1, branch5x5, branch7x7, branch_pool], 1)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.mean = ms.Tensor([0.485, 0.456, 0.406], ms.float32).view(1, 3, 1, 1)
        self.std = ms.Tensor([0.229, 0.224, 0.225], ms.float32).view(1, 3, 1, 1)
        self.stem = BasicConv2d(3, 8, 3, padding=1)
        self.mixed1 = Inception(8)
        self.mixed2 = Inception(24)
        self.fc = nn.Dense(24, 5)

    def construct(self, x):
        x = ops.sigmoid(x)
        x = (x - self.mean) / self.std
        x = self.mixed1(self.stem(x))
        x = ops.max_pool2d(x, 3, stride=2, ceil_mode=True)
        x = self.mixed2(x)
        x = ops.adaptive_avg_pool2d(x, (1, 1)).flatten(start_dim=1)
        return self.fc(x)
