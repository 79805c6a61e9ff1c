"""A small PointNet for segmentation: input transform, shared MLPs, global max feature."""

from mindspore import nn, ops


class SharedMLP(nn.Cell):
    """A dense layer and a BatchNorm for each point of (B, N, C)."""

    def __init__(self, cin, cout, bias=True):
        super().__init__()
        self.dense = nn.Dense(cin, cout, has_bias=bias)
        self.bn = nn.BatchNorm1d(cout, momentum=0.9)

    def construct(self, x):
        b, n, _ = x.shape
        y = self.dense(x)
        c = y.shape[2]
        y = self.bn(y.reshape(b * n, c))
        return y.reshape(b, n, c)


class STN3d(nn.Cell):
    def __init__(self):
        super().__init__()
        self.mlp1 = SharedMLP(3, 8)
        self.mlp2 = SharedMLP(8, 12)
        self.fc1 = nn.Dense(12, 10)
        self.fc2 = nn.Dense(10, 9)

    def construct(self, x):
        x = ops.relu(self.mlp1(x))
        x = ops.relu(self.mlp2(x))
        x = x.max(axis=1)
        x = self.fc2(ops.relu(self.fc1(x)))
        return x.view(-1, 3, 3) + ops.eye(3)


class Net(nn.Cell):
    def __init__(self, k=4):
        super().__init__()
        self.stn = STN3d()
        self.mlp1 = SharedMLP(3, 8, bias=False)
        self.mlp2 = SharedMLP(8, 12, bias=False)
        self.seg1 = nn.Dense(8 + 12, 10)
        self.seg2 = nn.Dense(10, k)

    def construct(self, points):
        trans = self.stn(points)
        x = ops.bmm(points, trans)
        local = ops.relu(self.mlp1(x))
        g = self.mlp2(local).max(axis=1, keepdims=True)
        x = ops.cat([g.tile((1, points.shape[1], 1)), local], 2)
        x = self.seg2(ops.relu(self.seg1(x)))
        return x.swapaxes(1, 2)
