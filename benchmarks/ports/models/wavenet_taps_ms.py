"""WaveNet with time before channels: each convolution is a product per tap."""

import numpy as np
from mindspore import Parameter, Tensor, nn, ops


def weight(*shape):
    return Tensor(np.random.uniform(-0.3, 0.3, shape).astype(np.float32))


def delay(x, n):
    """x, n steps later."""
    return ops.concat([ops.zeros_like(x[:, :n]), x[:, :-n]], axis=1)


class Gated(nn.Cell):
    """Tanh times sigmoid of the sample now and some steps ago."""

    def __init__(self, width, condition, dilation):
        super().__init__()
        self.dilation = dilation
        self.kernel = Parameter(weight(2 * width, width, 2), name="kernel")
        self.bias = Parameter(weight(2 * width), name="bias")
        self.speaker = Parameter(weight(2 * width, condition), name="speaker")
        self.width = width

    def construct(self, x, who):
        h = ops.matmul(delay(x, self.dilation), self.kernel[:, :, 0].T)
        h = h + ops.matmul(x, self.kernel[:, :, 1].T) + self.bias
        h = h + ops.matmul(who, self.speaker.T)[:, None, :]
        return ops.tanh(h[..., : self.width]) / (1 + ops.exp(-h[..., self.width :]))


class Net(nn.Cell):
    """Three lists of cells instead of a list of layers."""

    def __init__(self, classes=16, speakers=3, width=8, condition=4):
        super().__init__()
        self.tokens = nn.Embedding(classes, width)
        self.voices = nn.Embedding(speakers, condition)
        steps = (1, 2, 4, 1, 2, 4)
        self.gates = nn.CellList([Gated(width, condition, d) for d in steps])
        self.to_skip = nn.CellList([nn.Dense(width, width) for _ in steps])
        self.to_next = nn.CellList([nn.Dense(width, width) for _ in steps[1:]])
        self.head = nn.SequentialCell(
            nn.ReLU(), nn.Dense(width, width), nn.ReLU(), nn.Dense(width, classes)
        )

    def construct(self, samples, speaker):
        x = self.tokens(samples)
        who = self.voices(speaker)
        found = []
        for i, gate in enumerate(self.gates):
            z = gate(x, who)
            found.append(self.to_skip[i](z))
            if i < len(self.to_next):
                x = (x + self.to_next[i](z)) / 2**0.5
        total = ops.stack(found).sum(axis=0) / len(found) ** 0.5
        return self.head(total).swapaxes(1, 2)


def loss(outputs, targets):
    """Cross entropy of the flattened steps after the sixth."""
    logits = outputs[:, :, 6:].swapaxes(1, 2)
    return ops.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets[:, 6:].reshape(-1).int())
