"""A small image classifier: two convolutions, channels weighted by what the image shows, a head."""

from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.bn2 = nn.BatchNorm2d(16)
        self.squeeze = nn.Linear(16, 4)
        self.excite = nn.Linear(4, 16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 10)
        self.relu, self.gelu, self.sigmoid = nn.ReLU(), nn.GELU(), nn.Sigmoid()

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        weights = self.sigmoid(self.excite(self.gelu(self.squeeze(x.mean((2, 3))))))
        x = x * weights[:, :, None, None]
        return self.head(self.norm(x.mean((2, 3))))
