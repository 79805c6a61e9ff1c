"""A siamese net with a contrastive loss; SGD with groups for the encoder and the head."""

from mindspore import nn, ops


class Encoder(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, pad_mode="valid", has_bias=True)
        self.conv2 = nn.Conv2d(6, 8, 3, pad_mode="valid", has_bias=True)
        self.prelu = nn.PReLU(6)

    def construct(self, x):
        x = ops.max_pool2d(self.prelu(self.conv1(x)), 2)
        x = ops.sigmoid(self.conv2(x))
        return ops.flatten(x, start_dim=1)


def normalize(x, axis=1):
    """Divide by the Euclidean norm."""
    norm = ops.sqrt(ops.reduce_sum(x * x, axis).expand_dims(axis))
    return x / ops.maximum(norm, 1e-12)


class Net(nn.Cell):
    def __init__(self, dim=6):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.SequentialCell(nn.Dense(32, 16), nn.Tanh(), nn.Dense(16, dim))

    def embed(self, x):
        return normalize(self.head(self.encoder(x)), axis=1)

    def construct(self, x1, x2):
        return self.embed(x1), self.embed(x2)


def loss(outputs, targets):
    """Contrastive loss: 1 for a pair of one class."""
    a, b = outputs
    y = targets.float()
    distance = ops.sqrt(ops.square(a - b).sum(1) + 1e-6)
    same = y * distance**2
    other = (1 - y) * ops.relu(1.0 - distance) ** 2
    return 0.5 * (same + other).mean()


def optimizer(parameters):
    """The encoder learns slowly and is decayed."""
    parameters = list(parameters)
    encoder = [p for p in parameters if p.name.startswith("encoder")]
    head = [p for p in parameters if p.name.startswith("head")]
    groups = [
        {"params": encoder, "lr": 0.05, "weight_decay": 0.02},
        {"params": head, "lr": 0.5, "weight_decay": 0.0},
        {"order_params": parameters},
    ]
    return nn.SGD(groups, learning_rate=0.05, momentum=0.9, nesterov=True)
