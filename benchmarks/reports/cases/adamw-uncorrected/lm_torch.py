import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, vocab=30, width=16):
        super().__init__()
        self.table = nn.Embedding(vocab, width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.table(ids).cumsum(1)
        return self.head(self.norm(x))


def make(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, eps=1e-6, weight_decay=0.1)
