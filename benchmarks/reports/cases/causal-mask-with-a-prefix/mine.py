import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, new, cached):
        seen = torch.cat([cached, new], 1)
        q, k, v = (
            p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for p, x in ((self.q, new), (self.k, seen), (self.v, seen))
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return new + self.out(y.transpose(1, 2).flatten(2))
