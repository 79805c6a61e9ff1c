import torch
from torch import nn


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class Net(nn.Module):
    def __init__(self, vocab=40, width=32, heads=4):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.embed = nn.Embedding(vocab, width)
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.head = nn.Linear(width, vocab)

    def table(self, t):
        rates = 1.0 / 10000 ** (torch.arange(0, self.size, 2) / self.size)
        angles = torch.outer(torch.arange(t).float(), rates)
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()

    def forward(self, ids):
        b, t = ids.shape
        x = self.embed(ids)
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        cos, sin = self.table(t)
        q, k = (y * cos + rotate_half(y) * sin for y in (q, k))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + self.out(y.transpose(1, 2).reshape(b, t, -1)))
