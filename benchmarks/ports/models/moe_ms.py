"""A switch layer (mixture of experts, one per token) in a small regressor."""

import mindspore as ms
from mindspore import Tensor, nn, ops


class Expert(nn.Cell):
    """Two dense layers."""

    def __init__(self, d, hidden):
        super().__init__()
        self.up = nn.Dense(d, hidden)
        self.down = nn.Dense(hidden, d)

    def construct(self, x):
        return self.down(ops.silu(self.up(x)))


class SwitchLayer(nn.Cell):
    """All experts on all tokens, the others' results zeroed."""

    def __init__(self, d, hidden, experts):
        super().__init__()
        self.gate = nn.Dense(d, experts, has_bias=False)
        self.experts = nn.CellList([Expert(d, hidden) for _ in range(experts)])

    def construct(self, x):
        probs = ops.softmax(self.gate(x), axis=-1)
        index = ops.argmax(probs, -1)
        weight = ops.amax(probs, -1)
        out = ops.zeros_like(x)
        for i, expert in enumerate(self.experts):
            chosen = (index == i).astype(x.dtype)
            out = out + expert(x) * (chosen * weight).expand_dims(-1)
        return out, probs


class Net(nn.Cell):
    """Outputs the prediction and the gate's probabilities."""

    def __init__(self, d=8, hidden=16, experts=3):
        super().__init__()
        self.input = nn.Dense(6, d)
        self.norm = nn.LayerNorm((d,), epsilon=1e-5)
        self.switch = SwitchLayer(d, hidden, experts)
        self.head = nn.Dense(d, 2)

    def construct(self, x):
        b, t, _ = x.shape
        h = self.input(x)
        y, probs = self.switch(self.norm(h).reshape(b * t, -1))
        h = h + y.reshape(b, t, -1)
        return self.head(h.mean(axis=1)), probs


def loss(outputs, targets):
    """Squared error and the balancing loss of the Switch Transformer."""
    prediction, probs = outputs
    n = probs.shape[-1]
    hot = ops.one_hot(ops.argmax(probs, -1), n, Tensor(1.0, ms.float32), Tensor(0.0, ms.float32))
    balance = n * (hot.mean(axis=0) * probs.mean(axis=0)).sum()
    return ops.mse_loss(prediction, targets) + 0.1 * balance
