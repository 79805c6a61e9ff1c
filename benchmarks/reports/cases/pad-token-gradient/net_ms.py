from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self, vocab=30, width=16, classes=4):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, width, padding_idx=1)
        self.conv = nn.Conv1d(width, width, 3, pad_mode="pad", padding=1, has_bias=True)
        self.fc = nn.Dense(width, classes)

    def construct(self, ids):
        x = self.embed_tokens(ids).swapaxes(1, 2)
        return self.fc(ops.amax(ops.relu(self.conv(x)), 2))
