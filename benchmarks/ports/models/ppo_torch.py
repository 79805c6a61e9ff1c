"""PPO for continuous actions: actor and critic, the clipped losses, and a TensorFlow-like RMSprop."""

import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F


def linear(inputs, outputs, gain):
    """A linear layer with orthogonal weights."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Actor(nn.Module):
    """Mean and deviation of the actions."""

    def __init__(self, inputs, actions, hidden=16, limit=2.0):
        super().__init__()
        self.limit = limit
        self.first = linear(inputs, hidden, 2**0.5)
        self.norm = nn.LayerNorm(hidden)
        self.second = linear(hidden, hidden, 2**0.5)
        self.head = linear(hidden, actions, 0.5)
        self.raw_std = nn.Parameter(torch.full((actions,), 2.0))

    def forward(self, x):
        x = torch.tanh(self.norm(self.first(x)))
        x = torch.tanh(self.second(x))
        return self.limit * torch.tanh(self.head(x)), F.softplus(self.raw_std) + 0.05


class Net(nn.Module):
    """Outputs the actions' mean and deviation, and the value of the state."""

    def __init__(self, frames=3, size=4, actions=2):
        super().__init__()
        self.register_buffer("low", torch.linspace(-1.5, -0.5, size))
        self.register_buffer("high", torch.linspace(1.0, 2.0, size))
        self.actor = Actor(frames * size + size + actions, actions)
        self.critic = nn.Sequential(
            linear(frames * size + size + actions, 16, 2**0.5), nn.ELU(),
            linear(16, 16, 2**0.5), nn.ELU(),
            linear(16, 1, 1.0),
        )

    def forward(self, state, last_action):
        state = 2 * (state - self.low) / (self.high - self.low) - 1
        state = state.clamp(-1.5, 1.5)
        speed = state[:, -1] - state[:, -2]
        x = torch.cat([state.flatten(1), speed, last_action], dim=1)
        mean, std = self.actor(x)
        return mean, std, self.critic(x).squeeze(-1)


def loss(outputs, targets, clip=0.2):
    """Targets: actions, the old policy's mean (its deviation is two), old values, returns."""
    mean, std, value = outputs
    action, old_mean, old_value, returns = targets.split([2, 2, 1, 1], dim=1)
    old_value, returns = old_value.squeeze(1), returns.squeeze(1)
    policy = Normal(mean, std)
    old_log = Normal(old_mean, 2.0).log_prob(action).sum(-1)
    ratio = (policy.log_prob(action).sum(-1) - old_log).exp()
    advantage = returns - value.detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
    near = old_value + (value - old_value).clamp(-clip, clip)
    value_loss = 0.5 * torch.max((value - returns) ** 2, (near - returns) ** 2).mean()
    return -surrogate + 0.5 * value_loss - 0.02 * policy.entropy().sum(-1).mean()


class RMSpropTF(torch.optim.Optimizer):
    """Squares start at one and epsilon stands under the root; clipped by the global norm, linear schedule."""

    def __init__(self, params, lr=0.1, decay=0.9, momentum=0.5, eps=1e-5, max_norm=0.5, updates=6):
        super().__init__(params, {"lr": lr, "decay": decay, "momentum": momentum, "eps": eps})
        self.max_norm = max_norm
        self.updates = updates
        self.done = 0

    @torch.no_grad()
    def step(self, closure=None):
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        nn.utils.clip_grad_norm_(params, self.max_norm)
        left = 1 - self.done / self.updates
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["square"] = torch.ones_like(p)
                    state["buffer"] = torch.zeros_like(p)
                state["square"].mul_(group["decay"]).addcmul_(p.grad, p.grad, value=1 - group["decay"])
                scaled = p.grad / (state["square"] + group["eps"]).sqrt()
                state["buffer"].mul_(group["momentum"]).add_(scaled)
                p.sub_(group["lr"] * left * state["buffer"])
        self.done += 1


def optimizer(parameters):
    return RMSpropTF(parameters)
