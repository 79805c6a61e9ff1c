"""SimSiam: projector, predictor and stopped gradients of the other view."""

from mindspore import nn, ops


def conv3x3(cin, cout):
    return nn.Conv2d(cin, cout, 3, stride=2, pad_mode="pad", padding=1, has_bias=False)


class Net(nn.Cell):
    def __init__(self, width=16, dim=12):
        super().__init__()
        self.backbone = nn.SequentialCell(
            conv3x3(2, 6),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            conv3x3(6, 8),
            nn.BatchNorm2d(8),
            nn.ReLU(),
        )
        self.proj_fc1 = nn.Dense(8, width, has_bias=False)
        self.proj_bn1 = nn.BatchNorm1d(width)
        self.proj_fc2 = nn.Dense(width, dim, has_bias=False)
        self.proj_bn2 = nn.BatchNorm1d(dim, affine=False)
        self.pred_fc1 = nn.Dense(dim, 6, has_bias=False)
        self.pred_bn1 = nn.BatchNorm1d(6)
        self.pred_fc2 = nn.Dense(6, dim)

    def project(self, x):
        h = self.backbone(x).mean((2, 3))
        h = ops.relu(self.proj_bn1(self.proj_fc1(h)))
        return self.proj_bn2(self.proj_fc2(h))

    def predict(self, z):
        return self.pred_fc2(ops.relu(self.pred_bn1(self.pred_fc1(z))))

    def construct(self, x1, x2):
        z1 = self.project(x1)
        z2 = self.project(x2)
        p1, p2 = self.predict(z1), self.predict(z2)
        return p1, p2, ops.stop_gradient(z1), ops.stop_gradient(z2)


def cosine(a, b):
    dot = (a * b).sum(-1)
    return dot / (ops.norm(a, dim=-1) * ops.norm(b, dim=-1))


def loss(outputs, targets=None):
    p1, p2, z1, z2 = outputs
    first = cosine(p1, z2).mean()
    second = cosine(p2, z1).mean()
    return -(first + second) * 0.5
