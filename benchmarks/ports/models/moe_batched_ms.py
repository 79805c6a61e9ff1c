"""A switch layer with its experts' results stacked and chosen by a one-hot product."""

import mindspore as ms
from mindspore import mint, nn, ops


class Net(nn.Cell):
    """Everything in one cell, names of its own."""

    def __init__(self, d=8, hidden=16, experts=3):
        super().__init__()
        self.embed = nn.Dense(6, d)
        self.ln = nn.LayerNorm((d,), epsilon=1e-5)
        self.router = nn.Dense(d, experts, has_bias=False)
        cells = [
            nn.SequentialCell(nn.Dense(d, hidden), nn.SiLU(), nn.Dense(hidden, d))
            for _ in range(experts)
        ]
        self.bank = nn.CellList(cells)
        self.out = nn.Dense(d, 2)

    def construct(self, x):
        h = self.embed(x)
        flat = self.ln(h).reshape(-1, h.shape[-1])
        probs = mint.softmax(self.router(flat), -1)
        best = (probs == ops.amax(probs, -1, keepdims=True)).astype(ms.float32)
        stacked = ops.stack([cell(flat) for cell in self.bank], 1)
        mixed = mint.matmul((probs * ops.stop_gradient(best))[:, None, :], stacked)[:, 0]
        return self.out(mint.mean(h + mixed.reshape(h.shape), 1)), probs


def loss(outputs, targets):
    """Squared error and three times the product of the means."""
    y, probs = outputs
    best = ops.stop_gradient((probs == ops.amax(probs, -1, keepdims=True)).astype(ms.float32))
    balance = mint.sum(mint.mean(best, 0) * mint.mean(probs, 0)) * probs.shape[1]
    return mint.mean(mint.square(y - targets)) + balance / 10
