"""Bengio's neural language model, trained by AdamW with warm-up and a cosine."""

import math

import torch
from torch import nn


class Net(nn.Module):
    """Four words in, one out; a direct path from the embeddings to the logits."""

    def __init__(self, vocab=12, k=6, hidden=16, context=4):
        super().__init__()
        self.C = nn.Embedding(vocab, k)
        self.norm = nn.LayerNorm(context * k)
        self.H = nn.Linear(context * k, hidden)
        self.U = nn.Linear(hidden, vocab, bias=False)
        self.W = nn.Linear(context * k, vocab)

    def forward(self, words):
        x = self.norm(self.C(words).flatten(1))
        return self.W(x) + self.U(torch.tanh(self.H(x)))


class ScheduledAdamW(torch.optim.AdamW):
    """Sets the learning rate before each step."""

    def __init__(self, groups, lr, warmup, total):
        super().__init__(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)
        self.peak, self.warmup, self.total, self.done = lr, warmup, total, 0

    def step(self, closure=None):
        if self.done < self.warmup:
            factor = (self.done + 1) / self.warmup
        else:
            progress = (self.done - self.warmup) / (self.total - self.warmup)
            factor = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress))
        for group in self.param_groups:
            group["lr"] = self.peak * factor
        self.done += 1
        return super().step(closure)


def optimizer(parameters):
    """Only matrices are decayed."""
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return ScheduledAdamW(groups, lr=0.02, warmup=2, total=6)
