"""A translator: bidirectional GRU encoder, GRU decoder with Bahdanau's attention."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD = 0


class Encoder(nn.Module):
    """Both directions over the words of each sentence, not over its padding."""

    def __init__(self, vocabulary, d, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, d)
        self.gru = nn.GRU(d, hidden, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(hidden, hidden)

    def forward(self, source, lengths):
        packed = pack_padded_sequence(
            self.embed(source), lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        states, last = self.gru(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        return states, torch.tanh(self.bridge(last[1]))


class Attention(nn.Module):
    """v . tanh(W query + U keys)."""

    def __init__(self, hidden, keys, size):
        super().__init__()
        self.query = nn.Linear(hidden, size, bias=False)
        self.key = nn.Linear(keys, size)
        self.score = nn.Linear(size, 1, bias=False)
        nn.init.xavier_uniform_(self.query.weight, gain=2.0)
        nn.init.normal_(self.score.weight)

    def forward(self, h, keys, mask):
        energy = self.score(torch.tanh(self.query(h).unsqueeze(1) + keys)).squeeze(-1)
        return energy.masked_fill(~mask, float("-inf")).softmax(dim=-1)


class Net(nn.Module):
    """Outputs the logits of each target word and the attention weights."""

    def __init__(self, source_words=12, target_words=9, d=6, hidden=8, size=7):
        super().__init__()
        self.encoder = Encoder(source_words, d, hidden)
        self.attention = Attention(hidden, 2 * hidden, size)
        self.embed = nn.Embedding(target_words, d)
        self.cell = nn.GRUCell(d + 2 * hidden, hidden)
        self.out = nn.Linear(hidden + 2 * hidden + d, target_words)

    def forward(self, source, lengths, previous):
        states, h = self.encoder(source, lengths)
        keys = self.attention.key(states)
        mask = torch.arange(source.shape[1]) < lengths[:, None]
        words = self.embed(previous)
        logits, weights = [], []
        for i in range(previous.shape[1]):
            a = self.attention(h, keys, mask)
            context = torch.bmm(a.unsqueeze(1), states).squeeze(1)
            h = self.cell(torch.cat([words[:, i], context], dim=-1), h)
            logits.append(self.out(torch.cat([h, context, words[:, i]], dim=-1)))
            weights.append(a)
        return torch.stack(logits, dim=1), torch.stack(weights, dim=1)


def loss(outputs, targets):
    """Negative log likelihood per sentence, and the coverage loss per target word."""
    logits, weights = outputs
    nll = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum"
    )
    coverage = weights.cumsum(dim=1) - weights
    overlap = torch.minimum(weights, coverage).sum(dim=-1)
    words = targets != PAD
    return nll / len(targets) + (overlap * words).sum() / words.sum()


class ClippedSGD(torch.optim.SGD):
    """Nesterov's momentum on gradients clipped by their common norm; the rate decays."""

    def __init__(self, parameters, limit, gamma, **options):
        super().__init__(parameters, **options)
        self.limit, self.gamma = limit, gamma

    def step(self, closure=None):
        nn.utils.clip_grad_norm_(self.param_groups[0]["params"], self.limit)
        result = super().step(closure)
        self.param_groups[0]["lr"] *= self.gamma
        return result


def optimizer(parameters):
    return ClippedSGD(parameters, limit=1.0, gamma=0.7, lr=0.3, momentum=0.9, nesterov=True)
