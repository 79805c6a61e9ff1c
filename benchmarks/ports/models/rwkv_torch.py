"""A small RWKV (version 4) language model, its recurrence a loop over time."""

import torch
from torch import nn
from torch.nn import functional as F


class L2Wrap(torch.autograd.Function):
    """Leaves the loss as it is and pulls the largest logits towards zero."""

    @staticmethod
    def forward(ctx, value, logits):
        ctx.save_for_backward(logits)
        return value

    @staticmethod
    def backward(ctx, grad):
        logits = ctx.saved_tensors[0]
        factor = 0.02 / (logits.shape[0] * logits.shape[1])
        top, index = logits.max(-1, keepdim=True)
        pull = torch.zeros_like(logits).scatter_(-1, index, top * factor)
        return grad, grad * pull


def wkv(w, u, k, v):
    """The averages of v, weighted by exp(k), decayed by w; the newest one has the bonus u."""
    b, t, d = k.shape
    above = torch.zeros(b, d)
    below = torch.zeros(b, d)
    top = torch.full((b, d), -1e30)
    found = []
    for i in range(t):
        ki, vi = k[:, i], v[:, i]
        most = torch.maximum(top, u + ki)
        old, new = torch.exp(top - most), torch.exp(u + ki - most)
        found.append((old * above + new * vi) / (old * below + new))
        most = torch.maximum(top + w, ki)
        old, new = torch.exp(top + w - most), torch.exp(ki - most)
        above = old * above + new * vi
        below = old * below + new
        top = most
    return torch.stack(found, dim=1)


class TimeMix(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.decay = nn.Parameter(torch.linspace(-3, 1, d))
        self.first = nn.Parameter(torch.randn(d) * 0.5 + 0.3)
        self.mix_k = nn.Parameter(torch.rand(1, 1, d))
        self.mix_v = nn.Parameter(torch.rand(1, 1, d))
        self.mix_r = nn.Parameter(torch.rand(1, 1, d))
        self.shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.key = nn.Linear(d, d, bias=False)
        self.value = nn.Linear(d, d, bias=False)
        self.receptance = nn.Linear(d, d, bias=False)
        self.output = nn.Linear(d, d, bias=False)
        for linear in (self.key, self.value, self.output):
            nn.init.orthogonal_(linear.weight)

    def forward(self, x):
        past = self.shift(x)
        xk = x * self.mix_k + past * (1 - self.mix_k)
        xv = x * self.mix_v + past * (1 - self.mix_v)
        xr = x * self.mix_r + past * (1 - self.mix_r)
        k, v, r = self.key(xk), self.value(xv), self.receptance(xr)
        return self.output(torch.sigmoid(r) * wkv(-torch.exp(self.decay), self.first, k, v))


class ChannelMix(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.mix_k = nn.Parameter(torch.rand(1, 1, d))
        self.mix_r = nn.Parameter(torch.rand(1, 1, d))
        self.shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.key = nn.Linear(d, hidden, bias=False)
        self.receptance = nn.Linear(d, d, bias=False)
        self.value = nn.Linear(hidden, d, bias=False)

    def forward(self, x):
        past = self.shift(x)
        xk = x * self.mix_k + past * (1 - self.mix_k)
        xr = x * self.mix_r + past * (1 - self.mix_r)
        return torch.sigmoid(self.receptance(xr)) * self.value(torch.relu(self.key(xk)) ** 2)


class Block(nn.Module):
    def __init__(self, d, number):
        super().__init__()
        self.number = number
        if number == 0:
            self.ln0 = nn.LayerNorm(d)
        self.ln1 = nn.LayerNorm(d)
        self.ln2 = nn.LayerNorm(d)
        self.att = TimeMix(d)
        self.ffn = ChannelMix(d, 2 * d)

    def forward(self, x):
        if self.number == 0:
            x = self.ln0(x)
        x = x + self.att(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class Net(nn.Module):
    """Logits of the next token."""

    def __init__(self, vocabulary=14, d=12, depth=2):
        super().__init__()
        self.emb = nn.Embedding(vocabulary, d)
        self.blocks = nn.ModuleList([Block(d, i) for i in range(depth)])
        self.ln_out = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.emb(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_out(x))


def loss(outputs, targets):
    value = F.cross_entropy(outputs.flatten(0, 1), targets.flatten())
    return L2Wrap.apply(value, outputs)
