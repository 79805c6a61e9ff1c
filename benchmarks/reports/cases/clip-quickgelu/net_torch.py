import torch
from torch import nn


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gelu = QuickGELU()

    def forward(self, x, mask):
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, need_weights=False, attn_mask=mask)[0]
        return x + self.c_proj(self.gelu(self.c_fc(self.ln_2(x))))


class Net(nn.Module):
    def __init__(self, vocab=60, width=32, heads=4, length=12):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, width)
        self.positional_embedding = nn.Embedding(length, width)
        self.resblocks = nn.ModuleList([Block(width, heads) for _ in range(2)])
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Linear(width, 16, bias=False)

    def forward(self, ids):
        t = ids.shape[1]
        x = self.token_embedding(ids) + self.positional_embedding(torch.arange(t))
        mask = torch.full((t, t), float("-inf")).triu(1)
        for block in self.resblocks:
            x = block(x, mask)
        return self.text_projection(self.ln_final(x)[:, -1])
