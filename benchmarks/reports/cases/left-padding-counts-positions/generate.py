import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, vocab=30, width=32, heads=4, length=16):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.head = nn.Linear(width, vocab)

    def attend(self, x, mask):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        hidden = torch.ones(t, t).triu(1).bool() | ~mask[:, None, None]
        score = (q @ k.mT / (w // self.heads) ** 0.5).masked_fill(hidden, -1e4)
        return self.proj((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))

    def forward(self, ids):
        mask = ids != 0
        position_ids = (mask.long().cumsum(-1) - 1).clamp(min=0)
        x = self.tokens(ids) + self.positions(position_ids)
        return self.head(x + self.attend(self.norm(x), mask))
