"""Deep interest network for click-through rates, with a factorisation machine beside the deep part."""

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeNormal, Normal, initializer


class Embedding(nn.Embedding):
    """A table whose padding row 0 stays as it is."""

    def construct(self, ids):
        rows = super().construct(ids)
        return ops.where((ids == 0).expand_dims(-1), ops.stop_gradient(rows), rows)


class BatchStatistics(nn.Cell):
    """Batch normalisation without scale and shift."""

    def __init__(self, num_features, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.running_mean = Parameter(initializer("zeros", (num_features,), ms.float32), requires_grad=False)
        self.running_var = Parameter(initializer("ones", (num_features,), ms.float32), requires_grad=False)

    def construct(self, x):
        if not self.training:
            return (x - self.running_mean) * ops.rsqrt(self.running_var + self.eps)
        n = x.shape[0]
        mean = x.mean(axis=0)
        var = ops.square(x - mean).mean(axis=0)
        m = self.momentum
        new_mean = (1 - m) * self.running_mean + m * mean
        new_var = (1 - m) * self.running_var + m * var * (n / (n - 1))
        ops.assign(self.running_mean, ops.stop_gradient(new_mean))
        ops.assign(self.running_var, ops.stop_gradient(new_var))
        return (x - mean) * ops.rsqrt(var + self.eps)


class Dice(nn.Cell):
    """x where the normalised x is large, alpha * x where it is small, softly."""

    def __init__(self, num_features):
        super().__init__()
        self.bn = BatchStatistics(num_features)
        self.alpha = Parameter(Tensor([0.25] * num_features, ms.float32))

    def construct(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        p = ops.sigmoid(self.bn(x))
        return (p * x + (1 - p) * self.alpha * x).reshape(shape)


class LocalActivationUnit(nn.Cell):
    """How much each past behaviour matters for the candidate."""

    def __init__(self, dim, hidden=(16, 8)):
        super().__init__()
        self.fc1 = nn.Dense(4 * dim, hidden[0])
        self.dice = Dice(hidden[0])
        self.fc2 = nn.Dense(hidden[0], hidden[1])
        self.prelu = nn.PReLU(hidden[1])
        self.fc3 = nn.Dense(hidden[1], 1)

    def construct(self, query, keys):
        query = ops.broadcast_to(query.expand_dims(1), keys.shape)
        x = ops.cat((query, keys, query - keys, query * keys), axis=-1)
        x = self.dice(self.fc1(x))
        x = self.prelu(self.fc2(x).swapaxes(1, 2)).swapaxes(1, 2)
        return self.fc3(x).squeeze(-1)


class AttentionPooling(nn.Cell):
    def __init__(self, dim):
        super().__init__()
        self.unit = LocalActivationUnit(dim)

    def construct(self, query, keys, length):
        mask = ops.arange(keys.shape[1]).expand_dims(0) < length.expand_dims(1)
        weights = self.unit(query, keys)
        weights = ops.where(mask, weights, ops.zeros_like(weights))
        return ops.bmm(weights.expand_dims(1), keys).squeeze(1)


class FactorizationMachine(nn.Cell):
    """Second-order interactions of the fields: half of (square of sum - sum of squares)."""

    def construct(self, fields):
        square_of_sum = ops.square(fields.sum(axis=1))
        sum_of_square = ops.square(fields).sum(axis=1)
        return 0.5 * (square_of_sum - sum_of_square).sum(axis=1)


class Net(nn.Cell):
    """Returns the logit of a click and the embeddings of the sample (for their penalty)."""

    def __init__(self, users=12, items=10, cates=6, dim=8):
        super().__init__()
        self.dim = dim
        self.user_emb = Embedding(users, dim, embedding_table=Normal(0.4), padding_idx=0)
        self.item_emb = Embedding(items, dim, embedding_table=Normal(0.4), padding_idx=0)
        self.cate_emb = Embedding(cates, dim, embedding_table=Normal(0.4), padding_idx=0)
        self.attention = AttentionPooling(2 * dim)
        self.fm = FactorizationMachine()
        self.mlp = nn.SequentialCell(
            nn.Dense(7 * dim, 24),
            Dice(24),
            nn.Dense(24, 12),
            Dice(12),
            nn.Dense(12, 1),
        )
        for _, cell in self.cells_and_names():
            if isinstance(cell, nn.Dense):
                cell.weight.set_data(initializer(HeNormal(), cell.weight.shape, cell.weight.dtype))

    def construct(self, user, item, cate, hist_item, hist_cate, length):
        u = self.user_emb(user)
        query = ops.cat((self.item_emb(item), self.cate_emb(cate)), axis=-1)
        keys = ops.cat((self.item_emb(hist_item), self.cate_emb(hist_cate)), axis=-1)
        interest = self.attention(query, keys, length)

        deep = self.mlp(ops.cat((u, query, interest, query * interest), axis=-1)).squeeze(-1)
        fields = ops.cat((u, query, interest), axis=-1).reshape(-1, 5, self.dim)
        logit = deep + self.fm(fields)
        return logit, ops.cat((u, query), axis=-1)


def loss(outputs, targets, pos_weight=2.0, l2=0.02):
    """Clicks are rare and weigh twice; the embeddings of the sample are kept small."""
    logit, embeddings = outputs
    y = targets.astype(ms.float32)
    bce = -(pos_weight * y * ops.logsigmoid(logit) + (1 - y) * ops.logsigmoid(-logit)).mean()
    return bce + 0.5 * l2 * ops.square(embeddings).sum(axis=1).mean()


class ProximalAdagrad(nn.Optimizer):
    """Adagrad whose step is followed by the proximal step of l1 and l2."""

    def __init__(self, params, lr=0.05, lr_decay=0.2, l1=2e-3, l2=1e-2, initial_accumulator_value=0.1):
        super().__init__(lr, params)
        self.lr, self.lr_decay, self.l1, self.l2 = lr, lr_decay, l1, l2
        self.accum = self.parameters.clone(prefix="accum", init=initial_accumulator_value)
        self.t = Parameter(Tensor(0.0, ms.float32), name="t", requires_grad=False)

    def construct(self, gradients):
        ops.assign(self.t, self.t + 1)
        lr = self.lr / (1 + (self.t - 1) * self.lr_decay)
        for p, g, accum in zip(self.parameters, gradients, self.accum):
            ops.assign(accum, accum + g * g)
            rate = lr / ops.sqrt(accum)
            prox = p - rate * g
            shrunk = ops.relu(ops.abs(prox) - rate * self.l1)
            ops.assign(p, ops.sign(prox) * shrunk / (1 + rate * self.l2))
        return True


def optimizer(parameters):
    return ProximalAdagrad(list(parameters))
