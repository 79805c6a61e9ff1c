from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, vocab=30, width=16):
        super().__init__()
        self.table = nn.Embedding(vocab, width)
        self.norm, self.head = nn.LayerNorm((width,), epsilon=1e-5), nn.Dense(width, vocab)

    def construct(self, ids):
        x = ops.cumsum(self.table(ids), 1)
        return self.head(self.norm(x))


def make(parameters):
    return nn.AdamWeightDecay(parameters, learning_rate=1e-3, eps=1e-6, weight_decay=0.1)
