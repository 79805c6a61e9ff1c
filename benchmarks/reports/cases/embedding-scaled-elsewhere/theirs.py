import math

import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)

    def forward(self, ids):
        return self.embed(ids)


class PositionalEncoder(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.width = width
        pe = torch.zeros(length, width)
        for pos in range(length):
            for i in range(0, width, 2):
                pe[pos, i] = math.sin(pos / 10000 ** (i / width))
                pe[pos, i + 1] = math.cos(pos / 10000 ** (i / width))
        self.register_buffer("pe", pe)

    def forward(self, x):
        x = x * math.sqrt(self.width)
        return x + self.pe[: x.shape[1]]


class Net(nn.Module):
    def __init__(self, vocab=35, width=32, length=20):
        super().__init__()
        self.embedder, self.position = Embedder(vocab, width), PositionalEncoder(width, length)
        self.layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.layer(self.position(self.embedder(ids))))
