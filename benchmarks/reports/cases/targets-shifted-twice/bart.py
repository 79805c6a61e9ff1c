import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, vocab=25, width=16):
        super().__init__()
        self.table, self.mix = nn.Embedding(vocab, width), nn.Linear(width, width)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.table(ids).cumsum(1))))


def loss(logits, labels):
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
