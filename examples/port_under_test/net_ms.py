"""The port of net_torch.py. Each comment is a default that differs from PyTorch's."""

from mindspore import nn


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        # pad_mode is "same", and there is no bias.
        self.conv1 = nn.Conv2d(1, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.bn1 = nn.BatchNorm2d(8)  # momentum = 0.9 is PyTorch's 0.1
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, pad_mode="pad", padding=1, has_bias=True)
        self.bn2 = nn.BatchNorm2d(16)
        self.squeeze = nn.Dense(16, 4)
        self.excite = nn.Dense(4, 16)
        self.norm = nn.LayerNorm((16,), epsilon=1e-5)  # 1e-7
        self.head = nn.Dense(16, 10)
        # GELU is approximated.
        self.relu, self.gelu, self.sigmoid = nn.ReLU(), nn.GELU(approximate=False), nn.Sigmoid()

    def construct(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        weights = self.sigmoid(self.excite(self.gelu(self.squeeze(x.mean((2, 3))))))
        x = x * weights[:, :, None, None]
        return self.head(self.norm(x.mean((2, 3))))
