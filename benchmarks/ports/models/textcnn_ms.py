"""A convolutional text classifier with highway layers, padding masked in the pooling."""

from mindspore import nn, ops

PAD = 0


class Highway(nn.Cell):
    """A gate between a layer and its input."""

    def __init__(self, d):
        super().__init__()
        self.layer = nn.Dense(d, d)
        self.gate = nn.Dense(d, d, bias_init=-1.0)

    def construct(self, x):
        g = ops.sigmoid(self.gate(x))
        h = ops.relu(self.layer(x))
        return g * h + (1 - g) * x


class Net(nn.Cell):
    """Logits of the classes for rows of token numbers, 0 being the padding."""

    def __init__(self, vocabulary=16, d=8, filters=6, widths=(2, 3, 4), classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d, padding_idx=PAD)
        self.convs = nn.CellList(
            [nn.Conv1d(d, filters, w, pad_mode="valid", has_bias=True) for w in widths]
        )
        size = filters * len(widths)
        self.highway = nn.SequentialCell(Highway(size), Highway(size))
        self.classify = nn.Dense(size, classes)

    def construct(self, tokens):
        padding = tokens == PAD
        x = self.embedding(tokens)
        x = x * ops.logical_not(padding).astype(x.dtype).expand_dims(-1)
        x = x.swapaxes(1, 2)
        found = []
        for conv in self.convs:
            y = ops.relu(conv(x))
            mask = padding[:, : y.shape[-1]].expand_dims(1)
            y = y.masked_fill(mask, -1e4)
            found.append(y.max(axis=-1))
        return self.classify(self.highway(ops.concat(found, axis=1)))


class MaxNormAdadelta(nn.Optimizer):
    """Adadelta; after each step no row of a matrix is longer than the limit."""

    def __init__(self, parameters, limit, learning_rate=1.0, rho=0.9, epsilon=1e-4):
        super().__init__(learning_rate, parameters)
        self.limit = limit
        self.lr = learning_rate
        self.rho = rho
        self.eps = epsilon
        self.squares = self._parameters.clone(prefix="squares", init="zeros")
        self.deltas = self._parameters.clone(prefix="deltas", init="zeros")

    def shorten(self, w):
        norm = ops.sqrt(ops.square(w).sum(axis=1, keepdims=True))
        return w * ops.minimum(norm, self.limit) / ops.maximum(norm, 1e-7)

    def construct(self, gradients):
        for p, g, square, delta in zip(self._parameters, gradients, self.squares, self.deltas):
            s = self.rho * square + (1 - self.rho) * g * g
            step = ops.sqrt(delta + self.eps) / ops.sqrt(s + self.eps) * g
            ops.assign(square, s)
            ops.assign(delta, self.rho * delta + (1 - self.rho) * step * step)
            w = p - self.lr * step
            if p.ndim == 2:
                w = self.shorten(w)
            ops.assign(p, w)
        return True


def optimizer(parameters):
    return MaxNormAdadelta(parameters, limit=2.5)
