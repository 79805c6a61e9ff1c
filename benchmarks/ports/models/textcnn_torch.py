"""A convolutional text classifier with highway layers, padding masked in the pooling."""

import torch
from torch import nn
from torch.nn import functional as F

PAD = 0


class Highway(nn.Module):
    """A gate between a layer and its input."""

    def __init__(self, d):
        super().__init__()
        self.layer = nn.Linear(d, d)
        self.gate = nn.Linear(d, d)
        nn.init.constant_(self.gate.bias, -1.0)

    def forward(self, x):
        g = torch.sigmoid(self.gate(x))
        return g * F.relu(self.layer(x)) + (1 - g) * x


class Net(nn.Module):
    """Logits of the classes for rows of token numbers, 0 being the padding."""

    def __init__(self, vocabulary=16, d=8, filters=6, widths=(2, 3, 4), classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d, padding_idx=PAD)
        self.convs = nn.ModuleList([nn.Conv1d(d, filters, w) for w in widths])
        size = filters * len(widths)
        self.highway = nn.Sequential(Highway(size), Highway(size))
        self.classify = nn.Linear(size, classes)

    def forward(self, tokens):
        padding = tokens == PAD
        x = self.embedding(tokens).masked_fill(padding.unsqueeze(-1), 0.0).transpose(1, 2)
        found = []
        for conv in self.convs:
            y = F.relu(conv(x))
            y = y.masked_fill(padding[:, None, : y.shape[-1]], -1e4)
            found.append(y.max(dim=-1).values)
        return self.classify(self.highway(torch.cat(found, dim=1)))


class MaxNormAdadelta(torch.optim.Adadelta):
    """Adadelta; after each step no row of a matrix is longer than the limit."""

    def __init__(self, parameters, limit, **options):
        super().__init__(parameters, **options)
        self.limit = limit

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() == 2:
                    norm = p.norm(dim=1, keepdim=True)
                    p.mul_(norm.clamp(max=self.limit) / norm.clamp(min=1e-7))


def optimizer(parameters):
    return MaxNormAdadelta(parameters, limit=2.5, lr=1.0, rho=0.9, eps=1e-4)
