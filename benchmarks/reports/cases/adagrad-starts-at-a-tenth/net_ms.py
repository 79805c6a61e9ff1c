from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(10, 16), nn.Dense(16, 5)

    def construct(self, x):
        return self.fc2(ops.sigmoid(self.fc1(x)))


def make(parameters):
    return nn.Adagrad(parameters, learning_rate=0.05)
