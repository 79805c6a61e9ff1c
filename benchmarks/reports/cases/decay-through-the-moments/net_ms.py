from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(8, 16), nn.Dense(16, 3)

    def construct(self, x):
        return self.fc2(ops.tanh(self.fc1(x)))


def make(parameters):
    return nn.Adam(parameters, learning_rate=1e-3, weight_decay=0.1)
