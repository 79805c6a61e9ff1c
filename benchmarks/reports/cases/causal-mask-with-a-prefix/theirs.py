import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, new, cached):
        seen = torch.cat([cached, new], 1)
        q, k, v = self.split(self.q(new)), self.split(self.k(seen)), self.split(self.v(seen))
        mask = torch.ones(seen.shape[1], seen.shape[1], dtype=torch.bool).tril()[-new.shape[1] :]
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return new + self.out(y.transpose(1, 2).flatten(2))
