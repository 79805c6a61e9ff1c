"""DeepFM: linear part, factorisation machine and a network over shared embeddings."""

import mindspore as ms
from mindspore import nn, ops
from mindspore.common.initializer import Normal


class Net(nn.Cell):
    """A user, a padded history of items, some numbers; outputs logits of clicks."""

    def __init__(self, users=10, items=8, k=6):
        super().__init__()
        self.user_embedding = nn.Embedding(users, k, embedding_table=Normal(0.5))
        self.item_embedding = nn.Embedding(items, k, embedding_table=Normal(0.5), padding_idx=0)
        self.number_layer = nn.Dense(3, k)
        self.user_bias = nn.Embedding(users, 1, embedding_table=Normal(0.5))
        self.wide = nn.Dense(3, 1)
        self.fc1 = nn.Dense(3 * k, 12, has_bias=False)
        self.bn = nn.BatchNorm1d(12, eps=1e-5, momentum=0.9)
        self.fc2 = nn.Dense(12, 1)
        self.relu = nn.ReLU()

    def construct(self, user, history, numbers):
        keep = (history != 0).astype(ms.float32)
        rows = self.item_embedding(history)
        # nn.Embedding only fills the row of padding_idx with zeros: no gradient may reach it.
        rows = ops.where(keep.expand_dims(-1) > 0, rows, ops.stop_gradient(rows))
        items = rows.sum(axis=1) / ops.maximum(keep.sum(axis=1, keepdims=True), 1)
        fields = ops.stack((self.user_embedding(user), items, self.number_layer(numbers)), axis=1)
        linear = self.user_bias(user) + self.wide(numbers)
        square_of_sum = ops.square(fields.sum(axis=1))
        sum_of_square = ops.square(fields).sum(axis=1)
        fm = 0.5 * (square_of_sum - sum_of_square).sum(axis=1, keepdims=True)
        x = fields.reshape(fields.shape[0], -1)
        x = self.relu(self.bn(self.fc1(x)))
        deep = self.fc2(x)
        return (linear + fm + deep).squeeze(1)


def loss(logits, clicks):
    """Clicks weigh three times."""
    labels = clicks.astype(ms.float32)
    ones = ops.ones_like(logits)
    return ops.binary_cross_entropy_with_logits(logits, labels, ones, 3 * ones, reduction="mean")


class Adagrad(nn.Optimizer):
    """Adagrad as PyTorch computes it."""

    def __init__(self, params, lr=0.01, lr_decay=0.0, initial_accumulator_value=0.0, eps=1e-10):
        super().__init__(lr, params)
        self.lr, self.lr_decay, self.eps = lr, lr_decay, eps
        self.step_count = 0
        self.sums = self.parameters.clone(prefix="sum", init="zeros")
        for s in self.sums:
            s.set_data(ops.full(s.shape, initial_accumulator_value, dtype=ms.float32))

    def construct(self, grads):
        rate = self.lr / (1 + self.step_count * self.lr_decay)
        self.step_count += 1
        for p, g, s in zip(self.parameters, grads, self.sums):
            ops.assign_add(s, g * g)
            ops.assign_sub(p, rate * g / (ops.sqrt(s) + self.eps))
        return True


def optimizer(parameters):
    """Adagrad with a start of 0.1 and a falling rate."""
    return Adagrad(parameters, lr=0.05, lr_decay=0.1, initial_accumulator_value=0.1)
