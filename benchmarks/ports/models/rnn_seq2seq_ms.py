"""GRU encoder and decoder with dot-product attention, teacher forcing and tied output weights."""

import math

import mindspore as ms
from mindspore import Parameter, nn, ops


class Encoder(nn.Cell):
    def __init__(self, vocab, size):
        super().__init__()
        self.embedding = nn.Embedding(vocab, size)
        self.gru = nn.GRU(size, size, batch_first=True)

    def construct(self, src):
        return self.gru(self.embedding(src))


class Attention(nn.Cell):
    def __init__(self, size):
        super().__init__()
        self.w_q = nn.Dense(size, size, has_bias=False)
        self.w_k = nn.Dense(size, size, has_bias=False)

    def construct(self, query, keys, mask):
        scores = ops.bmm(self.w_q(query).expand_dims(1), self.w_k(keys).swapaxes(1, 2)).squeeze(1)
        scores = scores / math.sqrt(query.shape[-1])
        scores = ops.masked_fill(scores, mask, -1e4)
        weights = ops.softmax(scores, axis=-1)
        return ops.bmm(weights.expand_dims(1), keys).squeeze(1)


class TiedOutput(nn.Cell):
    """An output layer whose weight is the embedding's table."""

    def __init__(self, vocab):
        super().__init__()
        self.bias = Parameter(ops.zeros((vocab,), ms.float32), name="bias")

    def construct(self, x, table):
        return ops.matmul(x, table.T) + self.bias


class Decoder(nn.Cell):
    def __init__(self, vocab, size):
        super().__init__()
        self.embedding = nn.Embedding(vocab, size)
        self.attention = Attention(size)
        self.cell = nn.GRUCell(2 * size, size)
        self.combine = nn.Dense(2 * size, size)
        self.out = TiedOutput(vocab)

    def construct(self, tgt, hidden, keys, mask):
        embedded = self.embedding(tgt)
        logits = []
        for t in range(tgt.shape[1]):
            context = self.attention(hidden, keys, mask)
            hidden = self.cell(ops.cat([embedded[:, t], context], axis=1), hidden)
            top = ops.tanh(self.combine(ops.cat([hidden, context], axis=1)))
            logits.append(self.out(top, self.embedding.embedding_table))
        return ops.stack(logits, axis=1)


class Net(nn.Cell):
    def __init__(self, src_vocab=12, tgt_vocab=14, size=10):
        super().__init__()
        self.encoder = Encoder(src_vocab, size)
        self.decoder = Decoder(tgt_vocab, size)

    def construct(self, src, tgt):
        keys, last = self.encoder(src)
        mask = src == 0
        return self.decoder(tgt, last[0], keys, mask).swapaxes(1, 2)
