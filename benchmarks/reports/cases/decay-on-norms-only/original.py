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
    matrices = [p for p in parameters if p.ndim > 1]
    rest = [p for p in parameters if p.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-2)
