import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(12, 12)
        self.LayerNorm = nn.LayerNorm(12)
        self.classifier = nn.Linear(12, 2)

    def forward(self, x):
        return self.classifier(self.LayerNorm(x + torch.tanh(self.dense(x))))


def make(parameters):
    parameters = list(parameters)
    no_decay = [p for p in parameters if p.ndim == 1]
    groups = [
        {"params": [p for p in parameters if any(p is q for q in no_decay)], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-2)
