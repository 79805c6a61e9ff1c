"""DeepFM: linear part, factorisation machine and a network over shared embeddings."""

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    """A user, a padded history of items, some numbers; outputs logits of clicks."""

    def __init__(self, users=10, items=8, k=6):
        super().__init__()
        self.user = nn.Embedding(users, k)
        self.item = nn.Embedding(items, k, padding_idx=0)
        self.number = nn.Linear(3, k)
        self.user_bias = nn.Embedding(users, 1)
        self.wide = nn.Linear(3, 1)
        self.fc1 = nn.Linear(3 * k, 12, bias=False)
        self.bn = nn.BatchNorm1d(12)
        self.fc2 = nn.Linear(12, 1)
        for table in (self.user, self.item, self.user_bias):
            nn.init.normal_(table.weight, std=0.5)
        with torch.no_grad():
            self.item.weight[0] = 0

    def forward(self, user, history, numbers):
        keep = (history != 0).float()
        items = self.item(history).sum(1) / keep.sum(1, keepdim=True).clamp(min=1)
        fields = torch.stack([self.user(user), items, self.number(numbers)], dim=1)
        linear = self.user_bias(user) + self.wide(numbers)
        fm = 0.5 * (fields.sum(1) ** 2 - (fields**2).sum(1)).sum(1, keepdim=True)
        deep = self.fc2(F.relu(self.bn(self.fc1(fields.flatten(1)))))
        return (linear + fm + deep).squeeze(1)


def loss(logits, clicks):
    """Clicks weigh three times."""
    weight = torch.tensor(3.0)
    return F.binary_cross_entropy_with_logits(logits, clicks.float(), pos_weight=weight)


def optimizer(parameters):
    """Adagrad with a start of 0.1 and a falling rate."""
    return torch.optim.Adagrad(parameters, lr=0.05, lr_decay=0.1, initial_accumulator_value=0.1)
