"""GRU encoder and decoder with dot-product attention, teacher forcing and tied output weights."""

import math

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab, size):
        super().__init__()
        self.embedding = nn.Embedding(vocab, size)
        self.gru = nn.GRU(size, size, batch_first=True)

    def forward(self, src):
        return self.gru(self.embedding(src))


class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.w_q = nn.Linear(size, size, bias=False)
        self.w_k = nn.Linear(size, size, bias=False)

    def forward(self, query, keys, mask):
        scores = torch.bmm(self.w_q(query).unsqueeze(1), self.w_k(keys).transpose(1, 2)).squeeze(1)
        scores = scores / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(mask, -1e4)
        weights = torch.softmax(scores, dim=-1)
        return torch.bmm(weights.unsqueeze(1), keys).squeeze(1)


class Decoder(nn.Module):
    def __init__(self, vocab, size):
        super().__init__()
        self.embedding = nn.Embedding(vocab, size)
        self.attention = Attention(size)
        self.cell = nn.GRUCell(2 * size, size)
        self.combine = nn.Linear(2 * size, size)
        self.out = nn.Linear(size, vocab)
        self.out.weight = self.embedding.weight

    def forward(self, tgt, hidden, keys, mask):
        embedded = self.embedding(tgt)
        logits = []
        for t in range(tgt.shape[1]):
            context = self.attention(hidden, keys, mask)
            hidden = self.cell(torch.cat([embedded[:, t], context], dim=1), hidden)
            top = torch.tanh(self.combine(torch.cat([hidden, context], dim=1)))
            logits.append(self.out(top))
        return torch.stack(logits, dim=1)


class Net(nn.Module):
    def __init__(self, src_vocab=12, tgt_vocab=14, size=10):
        super().__init__()
        self.encoder = Encoder(src_vocab, size)
        self.decoder = Decoder(tgt_vocab, size)

    def forward(self, src, tgt):
        keys, last = self.encoder(src)
        mask = src == 0
        return self.decoder(tgt, last[0], keys, mask).transpose(1, 2)
