"""The small PointNet with Conv2d of size 1 and BatchNorm2d."""

from mindspore import Tensor, nn, ops
import numpy as np


def unit(cin, cout, bias=True):
    return nn.SequentialCell(nn.Conv2d(cin, cout, 1, has_bias=bias), nn.BatchNorm2d(cout))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.t_unit1 = unit(3, 8)
        self.t_unit2 = unit(8, 12)
        self.t_fc1 = nn.Dense(12, 10, activation=nn.ReLU())
        self.t_fc2 = nn.Dense(10, 9)
        self.unit1 = unit(3, 8, bias=False)
        self.unit2 = unit(8, 12, bias=False)
        self.point1 = nn.Conv2d(20, 10, 1, has_bias=True)
        self.point2 = nn.Conv2d(10, 4, 1, has_bias=True)
        self.identity = Tensor(np.eye(3, dtype=np.float32))

    def transform(self, x):
        y = ops.relu(self.t_unit2(ops.relu(self.t_unit1(x))))
        y = ops.amax(y, axis=(2, 3))
        return self.t_fc2(self.t_fc1(y)).reshape(-1, 3, 3) + self.identity

    def construct(self, points):
        x = points.permute(0, 2, 1).expand_dims(-1)
        matrix = self.transform(x)
        x = ops.matmul(matrix.swapaxes(1, 2), x.squeeze(-1)).expand_dims(-1)
        local = ops.relu(self.unit1(x))
        top = ops.amax(self.unit2(local), axis=2, keepdims=True)
        top = ops.broadcast_to(top, (-1, -1, x.shape[2], -1))
        y = ops.relu(self.point1(ops.concat((top, local), axis=1)))
        return self.point2(y).squeeze(-1)
