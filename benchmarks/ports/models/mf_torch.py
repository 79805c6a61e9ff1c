"""Matrix factorisation with biases."""

import torch
from torch import nn


class Net(nn.Module):
    """Outputs ratings and the penalty on the rows used."""

    def __init__(self, users=9, items=7, k=8):
        super().__init__()
        self.P = nn.Embedding(users, k)
        self.Q = nn.Embedding(items, k)
        self.user_bias = nn.Embedding(users, 1)
        self.item_bias = nn.Embedding(items, 1)
        self.mu = nn.Parameter(torch.tensor([0.5]))
        for table in (self.P, self.Q, self.user_bias, self.item_bias):
            nn.init.normal_(table.weight, std=0.5)

    def forward(self, users, items):
        p, q = self.P(users), self.Q(items)
        bu, bi = self.user_bias(users).squeeze(-1), self.item_bias(items).squeeze(-1)
        penalty = p.pow(2).sum(-1) + q.pow(2).sum(-1) + bu.pow(2) + bi.pow(2)
        return self.mu + bu + bi + torch.einsum("nk,nk->n", p, q), penalty


def loss(outputs, ratings):
    """Mean squared error and a little of the penalty."""
    rating, penalty = outputs
    return nn.functional.mse_loss(rating, ratings) + 0.02 * penalty.mean()


def optimizer(parameters):
    """SGD with momentum and weight decay."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3)
