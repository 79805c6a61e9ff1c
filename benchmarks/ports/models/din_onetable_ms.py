"""DIN with one table for all features, channels second in the activation unit, each layer one cell with its Dice."""

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Constant, Normal, initializer


class Features(nn.Cell):
    """All features in one table; each feature's first row is padding."""

    def __init__(self, sizes, dim):
        super().__init__()
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        self.user_start, self.item_start, self.cate_start = starts
        self.weight = Parameter(initializer(Normal(0.4), (sum(sizes), dim), ms.float32))
        learns = [[0.0] if row in starts else [1.0] for row in range(sum(sizes))]
        self.learns = Tensor(learns, ms.float32)

    def table(self):
        return self.weight * self.learns + ops.stop_gradient(self.weight) * (1 - self.learns)

    def construct(self, user, item, cate, items, cates):
        table = self.table()
        target = ops.stack([user + self.user_start, item + self.item_start, cate + self.cate_start], axis=1)
        past = ops.stack([items + self.item_start, cates + self.cate_start], axis=2)
        return table[target], table[past].reshape(*items.shape, -1)


class DenseDice(nn.Cell):
    """Linear layer over the channels (axis 1) and Dice after it."""

    def __init__(self, n_in, n_out, rank):
        super().__init__()
        self.rank = rank
        self.project = nn.Dense(n_in, n_out) if rank == 2 else nn.Conv1d(n_in, n_out, 1, has_bias=True)
        self.norm = nn.BatchNorm1d(n_out, eps=1e-5, momentum=0.9, affine=False)
        self.negative = Parameter(initializer(Constant(0.25), (n_out,), ms.float32))

    def construct(self, x):
        x = self.project(x)
        if self.rank == 2:
            gate = ops.sigmoid(self.norm(x))
            slope = self.negative
        else:
            b, c, t = x.shape
            gate = ops.sigmoid(self.norm(x.permute(0, 2, 1).reshape(b * t, c)))
            gate = gate.reshape(b, t, c).permute(0, 2, 1)
            slope = self.negative.reshape(1, c, 1)
        return gate * x + slope * (x - gate * x)


class Scores(nn.Cell):
    def __init__(self, d):
        super().__init__()
        self.first = DenseDice(4 * d, 16, rank=3)
        self.second = nn.Conv1d(16, 8, 1, has_bias=True)
        self.slope = Parameter(Tensor([0.25] * 8, ms.float32))
        self.third = nn.Conv1d(8, 1, 1, has_bias=True)

    def construct(self, q, keys):
        k = keys.permute(0, 2, 1)
        q = ops.tile(q.unsqueeze(2), (1, 1, k.shape[2]))
        x = self.second(self.first(ops.cat([q, k, q - k, q * k], axis=1)))
        x = ops.where(x > 0, x, self.slope.reshape(1, 8, 1) * x)
        return self.third(x)


class Net(nn.Cell):
    def __init__(self, dim=8):
        super().__init__()
        self.features = Features((12, 10, 6), dim)
        self.scores = Scores(2 * dim)
        self.deep = nn.SequentialCell(DenseDice(7 * dim, 24, 2), DenseDice(24, 12, 2), nn.Dense(12, 1))

    def construct(self, user, item, cate, items, cates, length):
        target, keys = self.features(user, item, cate, items, cates)
        b, t, d = keys.shape
        q = target[:, 1:].reshape(b, d)
        score = self.scores(q, keys)
        past = ops.sequence_mask(length.astype(ms.int32), t).unsqueeze(1)
        score = score.masked_fill(ops.logical_not(past), 0.0)
        interest = ops.matmul(score, keys).reshape(b, d)

        five = ops.cat([target, interest.reshape(b, 2, d // 2)], axis=1)
        gram = ops.bmm(five, five.permute(0, 2, 1))
        upper = ops.triu(ops.ones((5, 5)), 1)
        second_order = (gram * upper).sum(axis=(1, 2))
        flat = five.reshape(b, -1)
        deep = self.deep(ops.cat([flat, q * interest], axis=1))
        return deep.reshape(b) + second_order, target.reshape(b, -1)


def loss(outputs, targets):
    logit, used = outputs
    y = targets.astype(ms.float32)
    ones = ops.ones_like(logit)
    bce = ops.binary_cross_entropy_with_logits(logit, y, ones, ones * 2.0, reduction="mean")
    return bce + 0.02 * 0.5 * ops.norm(used) ** 2 / used.shape[0]


class Shrinking(nn.Optimizer):
    """One proximal Adagrad step for each parameter, by the built-in kernel."""

    def __init__(self, parameters):
        super().__init__(0.05, parameters)
        self.kernel = ops.ApplyProximalAdagrad()
        self.sums = self.parameters.clone("sums", init=0.1)
        self.done = 0

    def construct(self, gradients):
        rate = 0.05 / (1 + 0.2 * self.done)
        for i in range(len(self.parameters)):
            self.kernel(self.parameters[i], self.sums[i], rate, 2e-3, 1e-2, gradients[i])
        self.done += 1
        return True


def optimizer(parameters):
    return Shrinking(list(parameters))
