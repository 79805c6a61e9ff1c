"""A switch layer (mixture of experts, one per token) in a small regressor."""

import torch
from torch import nn
from torch.nn import functional as F


class Expert(nn.Module):
    """Two linear layers."""

    def __init__(self, d, hidden):
        super().__init__()
        self.up = nn.Linear(d, hidden)
        self.down = nn.Linear(hidden, d)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Switch(nn.Module):
    """Each token goes to its best expert, weighted by the gate."""

    def __init__(self, d, hidden, experts):
        super().__init__()
        self.gate = nn.Linear(d, experts, bias=False)
        self.experts = nn.ModuleList([Expert(d, hidden) for _ in range(experts)])
        nn.init.normal_(self.gate.weight, std=0.5)

    def forward(self, x):
        probs = F.softmax(self.gate(x), dim=-1)
        weight, index = probs.max(dim=-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            chosen = (index == i).nonzero(as_tuple=True)[0]
            out = out.index_add(0, chosen, expert(x[chosen]) * weight[chosen].unsqueeze(-1))
        return out, probs


class Net(nn.Module):
    """Outputs the prediction and the gate's probabilities."""

    def __init__(self, d=8, hidden=16, experts=3):
        super().__init__()
        self.input = nn.Linear(6, d)
        self.norm = nn.LayerNorm(d)
        self.switch = Switch(d, hidden, experts)
        self.head = nn.Linear(d, 2)

    def forward(self, x):
        b, t, _ = x.shape
        h = self.input(x)
        y, probs = self.switch(self.norm(h).reshape(b * t, -1))
        h = h + y.reshape(b, t, -1)
        return self.head(h.mean(1)), probs


def loss(outputs, targets):
    """Squared error and the balancing loss of the Switch Transformer."""
    prediction, probs = outputs
    n = probs.shape[-1]
    fraction = F.one_hot(probs.argmax(-1), n).float().mean(0)
    balance = n * (fraction * probs.mean(0)).sum()
    return F.mse_loss(prediction, targets) + 0.1 * balance
