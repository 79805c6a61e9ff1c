"""PPO with one stack of layers for each head, the losses by cases, and the optimizer's state in one dict."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

LOW = np.linspace(-1.5, -0.5, 4)
SPAN = np.linspace(1.0, 2.0, 4) - LOW


class Net(nn.Cell):
    """Policy and value, names of its own."""

    def __init__(self):
        super().__init__()
        self.scale = Tensor(2 / SPAN, ms.float32)
        self.shift = Tensor(2 * LOW / SPAN + 1, ms.float32)
        self.pi_in = nn.SequentialCell(nn.Dense(18, 16), nn.LayerNorm((16,), epsilon=1e-5), nn.Tanh())
        self.pi = nn.SequentialCell(nn.Dense(16, 16), nn.Tanh(), nn.Dense(16, 2), nn.Tanh())
        self.deviation = Parameter(Tensor([2.0, 2.0], ms.float32))
        self.v1 = nn.Dense(18, 16)
        self.v2 = nn.Dense(16, 16)
        self.v3 = nn.Dense(16, 1)

    def construct(self, frames, action):
        frames = mint.clamp(frames * self.scale - self.shift, -1.5, 1.5)
        older, old, new = frames.split(1, 1)
        x = mint.cat([older[:, 0], old[:, 0], new[:, 0], new[:, 0] - old[:, 0], action], 1)
        v = ops.elu(self.v1(x))
        v = self.v3(ops.elu(self.v2(v)))[:, 0]
        return 2 * self.pi(self.pi_in(x)), mint.log(1 + mint.exp(self.deviation)) + 0.05, v


def loss(outputs, targets):
    """The surrogate by the sign of the advantage."""
    mean, std, v = outputs
    a, before, v_old, goal = mint.split(targets, [2, 2, 1, 1], 1)
    v_old, goal = v_old[:, 0], goal[:, 0]
    change = (a - before) ** 2 / 8 - mint.square((a - mean) / std) / 2 - mint.log(std / 2)
    ratio = mint.exp(mint.sum(change, 1))
    gain = ops.stop_gradient(goal - v)
    gain = gain - mint.mean(gain)
    gain = gain / (mint.sqrt(mint.sum(gain * gain) / (gain.shape[0] - 1)) + 1e-8)
    kept = mint.where(gain > 0, mint.minimum(ratio, Tensor(1.2)), mint.maximum(ratio, Tensor(0.8)))
    step = v - v_old
    step = mint.where(step > 0.2, Tensor(0.2, ms.float32), step)
    step = mint.where(step < -0.2, Tensor(-0.2, ms.float32), step)
    far = mint.maximum(mint.abs(v - goal), mint.abs(v_old + step - goal))
    spread = mint.sum(mint.log(std * (2 * np.pi * np.e) ** 0.5))
    return mint.mean(far * far) / 4 - mint.mean(kept * gain) - spread / 50


class Root(nn.Optimizer):
    """Learning by the root of the mean squares."""

    def __init__(self, params):
        super().__init__(0.1, params)
        self.memory = None
        self.rates = [0.1 * (6 - i) / 6 for i in range(6)]

    def construct(self, gradients):
        if self.memory is None:
            self.memory = [(ops.ones_like(g), ops.zeros_like(g)) for g in gradients]
        gradients = ops.clip_by_global_norm(gradients, 0.5)
        rate = self.rates.pop(0)
        for i, p in enumerate(self.parameters):
            square, moved = self.memory[i]
            square = square + 0.1 * (gradients[i] ** 2 - square)
            moved = 0.5 * moved + gradients[i] * ops.rsqrt(square + 1e-5)
            self.memory[i] = (square, moved)
            p.set_data(p - rate * moved)
        return True


def optimizer(parameters):
    return Root(parameters)
