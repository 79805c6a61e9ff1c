"""A self-attentive sequential recommender with padding and a weighted BPR loss."""

import torch
from torch import nn
from torch.nn import functional as F


class FeedForward(nn.Module):
    """Two point-wise convolutions with a residual."""

    def __init__(self, d):
        super().__init__()
        self.conv1 = nn.Conv1d(d, d, kernel_size=1)
        self.conv2 = nn.Conv1d(d, d, kernel_size=1)

    def forward(self, x):
        return x + self.conv2(F.relu(self.conv1(x.transpose(-1, -2)))).transpose(-1, -2)


class Block(nn.Module):
    """Attention whose query alone is normed, then the point-wise network."""

    def __init__(self, d, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(d, eps=1e-8)
        self.attn = nn.MultiheadAttention(d, heads, bias=False, batch_first=True)
        self.norm2 = nn.LayerNorm(d, eps=1e-8)
        self.ffn = FeedForward(d)

    def forward(self, x, forbidden, keep):
        q = self.norm1(x)
        y, _ = self.attn(q, x, x, attn_mask=forbidden, need_weights=False)
        x = q + y
        return self.ffn(self.norm2(x)) * keep


class Net(nn.Module):
    """Outputs the scores of the next items and of the negatives."""

    def __init__(self, items=9, length=6, d=16, heads=2, blocks=2):
        super().__init__()
        self.d = d
        self.item = nn.Embedding(items, d, padding_idx=0)
        self.position = nn.Embedding(length + 1, d, padding_idx=0)
        self.blocks = nn.ModuleList([Block(d, heads) for _ in range(blocks)])
        self.last = nn.LayerNorm(d, eps=1e-8)
        for table in (self.item, self.position):
            nn.init.xavier_normal_(table.weight)
            with torch.no_grad():
                table.weight[0].zero_()

    def encode(self, seq):
        length = seq.shape[1]
        keep = (seq != 0).unsqueeze(-1)
        x = self.item(seq) * self.d**0.5
        places = torch.arange(1, length + 1) * (seq != 0)
        x = x + self.position(places)
        forbidden = ~torch.tril(torch.ones(length, length, dtype=torch.bool))
        for block in self.blocks:
            x = block(x, forbidden, keep)
        return self.last(x)

    def forward(self, seq, positive, negative):
        h = self.encode(seq)
        good = (h * self.item(positive)).sum(-1)
        bad = (h * self.item(negative)).sum(-1)
        return good, bad


def loss(outputs, targets):
    """Bayesian personalised ranking over the events, each weighted by its number."""
    good, bad = outputs
    weight = targets.float()
    return -(F.logsigmoid(good - bad) * weight).sum() / weight.sum()
