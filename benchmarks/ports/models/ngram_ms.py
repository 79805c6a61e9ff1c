"""Bengio's neural language model, trained by AdamW with warm-up and a cosine."""

import math

import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.experimental import optim


class Net(nn.Cell):
    """Four words in, one out; a direct path from the embeddings to the logits."""

    def __init__(self, vocab=12, k=6, hidden=16, context=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab, k)
        self.norm = nn.LayerNorm([context * k], epsilon=1e-5)
        self.hidden = nn.Dense(context * k, hidden)
        self.output = nn.Dense(hidden, vocab, has_bias=False)
        self.direct = nn.Dense(context * k, vocab)

    def construct(self, words):
        x = self.embedding(words)
        x = x.reshape(x.shape[0], -1)
        x = self.norm(x)
        h = ops.tanh(self.hidden(x))
        return self.direct(x) + self.output(h)


class ScheduledAdamW(optim.AdamW):
    """Sets the learning rate before each step."""

    def __init__(self, groups, lr, warmup, total):
        super().__init__(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)
        self.peak, self.warmup, self.total = lr, warmup, total
        self.done = 0

    def factor(self):
        if self.done < self.warmup:
            return (self.done + 1) / self.warmup
        progress = (self.done - self.warmup) / (self.total - self.warmup)
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress))

    def construct(self, gradients):
        lr = self.peak * self.factor()
        for group in self.param_groups:
            ops.assign(group["lr"], Tensor(lr, ms.float32))
        self.done += 1
        return super().construct(gradients)


def optimizer(parameters):
    """Only matrices are decayed."""
    matrices = [p for p in parameters if p.ndim >= 2]
    others = [p for p in parameters if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    return ScheduledAdamW(groups, lr=0.02, warmup=2, total=6)
