from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, width=8):
        super().__init__()
        self.into, self.out = nn.Dense(2, width), nn.Dense(width, 2)

    def construct(self, x):
        x = ops.tanh(self.into(x))
        share = ops.tril(ops.ones((x.shape[1], x.shape[1])))
        share = share / share.sum(1, keepdims=True)
        return self.out(ops.matmul(share, x))
