"""A bidirectional RNN classifier that reads both last states."""

import mindspore as ms
from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, vocab=18, emb=6, hidden=7, classes=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb)
        self.rnn = nn.RNN(emb, hidden, nonlinearity="tanh", bidirectional=True)
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm((2 * hidden,), epsilon=1e-5)
        self.fc = nn.Dense(2 * hidden, classes)

    def construct(self, tokens):
        tokens = tokens.astype(ms.int32)
        x = self.emb(tokens).swapaxes(0, 1)
        y, _ = self.rnn(x)
        y = self.norm(y.swapaxes(0, 1))
        out, h_n = self.gru(y)
        h = ops.cat([h_n[-2], h_n[-1]], axis=1)
        return self.fc(h)
