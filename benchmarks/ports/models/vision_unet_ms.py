"""A two-level U-Net: one bilinear and one transposed upsampling."""

from mindspore import nn, ops


class DoubleConv(nn.Cell):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.SequentialCell(
            [
                nn.Conv2d(in_channels, out_channels, 3, pad_mode="pad", padding=1),
                nn.BatchNorm2d(out_channels),
                nn.ReLU(),
                nn.Conv2d(out_channels, out_channels, 3, pad_mode="pad", padding=1),
                nn.BatchNorm2d(out_channels),
                nn.ReLU(),
            ]
        )

    def construct(self, x):
        return self.double_conv(x)


class Up(nn.Cell):
    def __init__(self, in_channels, skip_channels, out_channels, bilinear):
        super().__init__()
        self.bilinear = bilinear
        if not bilinear:
            self.up = nn.Conv2dTranspose(
                in_channels, in_channels, 2, 2, pad_mode="valid", has_bias=True
            )
        self.conv = DoubleConv(in_channels + skip_channels, out_channels)

    def construct(self, x1, x2):
        if self.bilinear:
            size = (2 * x1.shape[2], 2 * x1.shape[3])
            x1 = ops.interpolate(x1, size=size, mode="bilinear", align_corners=False)
        else:
            x1 = self.up(x1)
        dy = x2.shape[2] - x1.shape[2]
        dx = x2.shape[3] - x1.shape[3]
        x1 = ops.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        x = ops.cat([x2, x1], axis=1)
        return self.conv(x)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.inc = DoubleConv(3, 6)
        self.down1 = nn.SequentialCell(nn.MaxPool2d(2, 2), DoubleConv(6, 12))
        self.down2 = nn.SequentialCell(nn.MaxPool2d(2, 2), DoubleConv(12, 12))
        self.up1 = Up(12, 12, 6, bilinear=True)
        self.up2 = Up(6, 6, 6, bilinear=False)
        self.outc = nn.Conv2d(6, 4, 1, has_bias=True)

    def construct(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        y = self.up1(x3, x2)
        y = self.up2(y, x1)
        return self.outc(y)
