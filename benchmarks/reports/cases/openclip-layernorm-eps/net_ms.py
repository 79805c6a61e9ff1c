from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, vocab=50, width=24, length=10):
        super().__init__()
        self.embed, self.pos = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.norm_in, self.norm_out = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.project = nn.Dense(width, 12, has_bias=False)

    def construct(self, ids):
        x = self.embed(ids) + self.pos(ops.arange(ids.shape[1]))
        x = x + 0.05 * self.down(ops.relu(self.up(self.norm_in(x))))
        return self.project(self.norm_out(x)).mean(1)
