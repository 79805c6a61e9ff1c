"""DenseNet blocks (norm, relu, conv) with a transition."""

from mindspore import nn, ops


class DenseLayer(nn.Cell):
    def __init__(self, cin, growth, bn_size=2):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(cin)
        self.conv1 = nn.Conv2d(cin, bn_size * growth, 1)
        self.norm2 = nn.BatchNorm2d(bn_size * growth)
        self.conv2 = nn.Conv2d(bn_size * growth, growth, 3, pad_mode="pad", padding=1)

    def construct(self, features):
        x = ops.cat(features, 1)
        x = self.conv1(ops.relu(self.norm1(x)))
        return self.conv2(ops.relu(self.norm2(x)))


class DenseBlock(nn.Cell):
    def __init__(self, n, cin, growth):
        super().__init__()
        self.layers = nn.CellList([DenseLayer(cin + i * growth, growth) for i in range(n)])

    def construct(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return ops.cat(features, 1)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(3, 6, 3, pad_mode="valid")
        self.block1 = DenseBlock(3, 6, 6)
        self.transition = nn.SequentialCell(
            nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 12, 1), nn.AvgPool2d(2, 2)
        )
        self.block2 = DenseBlock(2, 12, 6)
        self.norm = nn.BatchNorm2d(24)
        self.classifier = nn.Dense(24, 5)

    def construct(self, x):
        x = ops.pad(x, (1, 1, 1, 1), mode="reflect")
        x = self.transition(self.block1(self.conv0(x)))
        x = ops.relu(self.norm(self.block2(x)))
        return self.classifier(x.mean(axis=(2, 3)))
