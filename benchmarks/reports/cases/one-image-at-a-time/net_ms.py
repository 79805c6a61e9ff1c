from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        conv = dict(pad_mode="pad", padding=1, has_bias=True)
        self.conv1, self.conv2 = nn.Conv2d(3, 16, 3, **conv), nn.Conv2d(16, 24, 3, **conv)
        self.pool, self.fc1, self.fc2 = nn.MaxPool2d(2, 2), nn.Dense(24 * 16, 32), nn.Dense(32, 10)

    def classify(self, x):
        x = self.pool(ops.relu(self.conv1(x)))
        x = self.pool(ops.relu(self.conv2(x)))
        return self.fc2(ops.relu(self.fc1(x.reshape(x.shape[0], -1))))

    def construct(self, x):
        return ops.cat([self.classify(x[i : i + 1]) for i in range(x.shape[0])])
