import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, vocab=40, width=32, heads=8, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.embed, self.norm = nn.Embedding(vocab, width), nn.RMSNorm(width, eps=1e-6)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * self.size, bias=False)
        self.v_proj = nn.Linear(width, groups * self.size, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        b, t = ids.shape
        x = self.embed(ids)
        h = self.norm(x)
        q = self.q_proj(h).view(b, t, self.heads, -1).transpose(1, 2)
        k = self.k_proj(h).view(b, t, self.groups, -1).transpose(1, 2)
        v = self.v_proj(h).view(b, t, self.groups, -1).transpose(1, 2)
        times = self.heads // self.groups
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.lm_head(x + self.o_proj(y.transpose(1, 2).reshape(b, t, -1)))
