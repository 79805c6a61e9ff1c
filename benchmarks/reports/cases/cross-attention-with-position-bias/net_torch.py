import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, biased):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.relative_attention_bias = nn.Embedding(8, heads) if biased else None

    def forward(self, x, memory):
        def split(y):
            return y.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(memory)), split(self.v(memory))
        scores = q @ k.transpose(2, 3)
        if self.relative_attention_bias is not None:
            back = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None]
            bias = self.relative_attention_bias(back.clamp(0, 7)).permute(2, 0, 1)
            scores = scores + bias + torch.where(back < 0, -1e9, 0.0)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Net(nn.Module):
    def __init__(self, vocab=30, width=24, heads=4):
        super().__init__()
        self.shared = nn.Embedding(vocab, width)
        self.SelfAttention = Attention(width, heads, biased=True)
        self.EncDecAttention = Attention(width, heads, biased=False)
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids, memory):
        x = self.shared(ids)
        x = x + self.SelfAttention(x, x)
        return self.lm_head(x + self.EncDecAttention(x, memory))
