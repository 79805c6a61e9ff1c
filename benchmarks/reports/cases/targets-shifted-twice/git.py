import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, vocab=25, width=16):
        super().__init__()
        self.table, self.mix = nn.Embedding(vocab, width), nn.Linear(width, width)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.table(ids).cumsum(1))))


def causal_loss(logits, labels):
    labels = nn.functional.pad(labels, (0, 1), value=-100)[..., 1:]
    return nn.functional.cross_entropy(logits, labels.long(), ignore_index=-100)


def loss(logits, labels):
    return causal_loss(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
