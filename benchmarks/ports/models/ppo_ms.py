"""PPO for continuous actions: actor and critic, the clipped losses, and a TensorFlow-like RMSprop."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Orthogonal


def dense(inputs, outputs, gain):
    """A dense layer with orthogonal weights."""
    return nn.Dense(inputs, outputs, weight_init=Orthogonal(gain), bias_init="zeros")


class Actor(nn.Cell):
    """Mean and deviation of the actions."""

    def __init__(self, inputs, actions, hidden=16, limit=2.0):
        super().__init__()
        self.limit = limit
        self.first = dense(inputs, hidden, 2**0.5)
        self.norm = nn.LayerNorm((hidden,), epsilon=1e-5)
        self.second = dense(hidden, hidden, 2**0.5)
        self.head = dense(hidden, actions, 0.5)
        self.raw_std = Parameter(Tensor(np.full(actions, 2.0), ms.float32))

    def construct(self, x):
        x = ops.tanh(self.norm(self.first(x)))
        x = ops.tanh(self.second(x))
        mean = self.limit * ops.tanh(self.head(x))
        return mean, ops.softplus(self.raw_std) + 0.05


class Net(nn.Cell):
    """Outputs the actions' mean and deviation, and the value of the state."""

    def __init__(self, frames=3, size=4, actions=2):
        super().__init__()
        self.low = Parameter(Tensor(np.linspace(-1.5, -0.5, size), ms.float32), requires_grad=False)
        self.high = Parameter(Tensor(np.linspace(1.0, 2.0, size), ms.float32), requires_grad=False)
        inputs = frames * size + size + actions
        self.actor = Actor(inputs, actions)
        self.critic = nn.SequentialCell(
            dense(inputs, 16, 2**0.5),
            nn.ELU(),
            dense(16, 16, 2**0.5),
            nn.ELU(),
            dense(16, 1, 1.0),
        )

    def construct(self, state, last_action):
        state = 2 * (state - self.low) / (self.high - self.low) - 1
        state = ops.clamp(state, -1.5, 1.5)
        speed = state[:, -1] - state[:, -2]
        x = ops.cat([state.reshape(state.shape[0], -1), speed, last_action], axis=1)
        mean, std = self.actor(x)
        return mean, std, self.critic(x).squeeze(-1)


def log_normal(x, mean, std):
    """Log-probability of independent normal numbers."""
    z = (x - mean) / std
    return (-0.5 * z * z - ops.log(std) - 0.5 * math.log(2 * math.pi)).sum(axis=-1)


def loss(outputs, targets, clip=0.2):
    """Targets: actions, the old policy's mean (its deviation is two), old values, returns."""
    mean, std, value = outputs
    action = targets[:, :2]
    old_mean = targets[:, 2:4]
    old_value = targets[:, 4]
    returns = targets[:, 5]
    old_log = log_normal(action, old_mean, 2 * ops.ones_like(std))
    ratio = ops.exp(log_normal(action, mean, std) - old_log)
    advantage = returns - ops.stop_gradient(value)
    advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    bounded = ops.clamp(ratio, 1 - clip, 1 + clip)
    surrogate = ops.minimum(ratio * advantage, bounded * advantage).mean()
    near = old_value + ops.clamp(value - old_value, -clip, clip)
    worse = ops.maximum(ops.square(value - returns), ops.square(near - returns))
    value_loss = 0.5 * worse.mean()
    entropy = (0.5 + 0.5 * math.log(2 * math.pi) + ops.log(std)).sum()
    return -surrogate + 0.5 * value_loss - 0.02 * entropy


class RMSPropTF(nn.Optimizer):
    """Squares start at one and epsilon stands under the root; clipped by the global norm, linear schedule."""

    def __init__(self, params, lr=0.1, decay=0.9, momentum=0.5, eps=1e-5, max_norm=0.5, updates=6):
        super().__init__(lr, params)
        self.lr = lr
        self.decay = decay
        self.momentum = momentum
        self.eps = eps
        self.max_norm = max_norm
        self.updates = updates
        self.done = 0
        self.squares = self.parameters.clone(prefix="square", init="ones")
        self.buffers = self.parameters.clone(prefix="buffer", init="zeros")

    def construct(self, gradients):
        norm = ops.sqrt(sum(ops.square(g).sum() for g in gradients))
        factor = ops.clamp(self.max_norm / (norm + 1e-6), max=1.0)
        rate = self.lr * (1 - self.done / self.updates)
        for p, g, square, buffer in zip(self.parameters, gradients, self.squares, self.buffers):
            g = g * factor
            ops.assign(square, self.decay * square + (1 - self.decay) * g * g)
            scaled = g / ops.sqrt(square + self.eps)
            ops.assign(buffer, self.momentum * buffer + scaled)
            ops.assign(p, p - rate * buffer)
        self.done += 1
        return True


def optimizer(parameters):
    return RMSPropTF(parameters)
