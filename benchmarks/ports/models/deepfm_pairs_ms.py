"""DeepFM with a loop over pairs of fields and one-hot products for the items."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


class Net(nn.Cell):
    """Own names; gradient of the padding row cut by a mask over the table's rows."""

    def __init__(self, users=10, items=8, k=6):
        super().__init__()
        self.items = items
        self.u = Parameter(Tensor(np.random.randn(users, k), ms.float32), name="u")
        self.i = Parameter(Tensor(np.random.randn(items, k), ms.float32), name="i")
        self.n = nn.Dense(3, k)
        self.b = Parameter(Tensor(np.random.randn(users, 1), ms.float32), name="b")
        self.w = nn.Dense(3, 1)
        self.tower = nn.SequentialCell(
            nn.Dense(3 * k, 12, has_bias=False), nn.BatchNorm1d(12), nn.ReLU(), nn.Dense(12, 1)
        )
        self.real = Tensor(np.arange(items)[:, None] > 0)

    def construct(self, user, history, numbers):
        table = mint.where(self.real, self.i, ops.stop_gradient(self.i))
        hot = (history[:, :, None] == ops.arange(self.items)).astype(ms.float32)
        count = mint.clamp((history > 0).astype(ms.float32).sum(1), min=1.0)
        mean = mint.matmul(hot, table).sum(1) / count[:, None]
        fields = [ops.gather(self.u, user, 0), mean, self.n(numbers)]
        fm = sum((fields[a] * fields[b]).sum(1) for a in range(3) for b in range(a))
        deep = self.tower(mint.cat(fields, 1))[:, 0]
        return (self.w(numbers) + ops.gather(self.b, user, 0))[:, 0] + fm + deep


def loss(logits, clicks):
    """The same written out."""
    y = clicks.astype(ms.float32)
    return ((1 + 2 * y) * ops.log(1 + ops.exp(-logits)) + (1 - y) * logits).mean()


class Decayed(nn.learning_rate_schedule.LearningRateSchedule):
    """lr / (1 + decay * step)."""

    def construct(self, global_step):
        return 0.05 / (1 + 0.1 * global_step.astype(ms.float32))


def optimizer(parameters):
    """MindSpore's own Adagrad."""
    return nn.Adagrad(parameters, accum=0.1, learning_rate=Decayed())
