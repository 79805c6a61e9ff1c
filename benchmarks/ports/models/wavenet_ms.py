"""A small WaveNet: gated, dilated, causal convolutions with a speaker's condition."""

import math

import mindspore as ms
from mindspore import nn, ops

WARM = 6


def conv1x1(channels, out):
    return nn.Conv1d(channels, out, 1, pad_mode="valid", has_bias=True)


class Layer(nn.Cell):
    """One gated convolution with its residual and its skip output."""

    def __init__(self, channels, condition, dilation, last=False):
        super().__init__()
        self.pad = dilation
        self.conv = nn.Conv1d(
            channels, 2 * channels, 2, dilation=dilation, pad_mode="valid", has_bias=True
        )
        self.cond = nn.Dense(condition, 2 * channels, has_bias=False)
        self.skip = conv1x1(channels, channels)
        self.last = last
        if not last:
            self.res = conv1x1(channels, channels)

    def construct(self, x, speaker):
        h = self.conv(ops.pad(x, (self.pad, 0))) + self.cond(speaker).expand_dims(-1)
        filtered, gate = ops.chunk(h, 2, axis=1)
        z = ops.tanh(filtered) * ops.sigmoid(gate)
        skip = self.skip(z)
        if not self.last:
            x = (x + self.res(z)) * math.sqrt(0.5)
        return x, skip


class Net(nn.Cell):
    """Logits of the next sample at every step."""

    def __init__(self, classes=16, speakers=3, channels=8, condition=4, stacks=2, depth=3):
        super().__init__()
        self.embed = nn.Embedding(classes, channels)
        self.speaker = nn.Embedding(speakers, condition)
        n = stacks * depth
        dilations = [2 ** (i % depth) for i in range(n)]
        self.layers = nn.CellList(
            [Layer(channels, condition, d, i == n - 1) for i, d in enumerate(dilations)]
        )
        self.scale = math.sqrt(1.0 / n)
        self.out1 = conv1x1(channels, channels)
        self.out2 = conv1x1(channels, classes)

    def construct(self, samples, speaker):
        x = self.embed(samples).transpose(0, 2, 1)
        c = self.speaker(speaker)
        skips = 0
        for layer in self.layers:
            x, skip = layer(x, c)
            skips = skips + skip
        h = ops.relu(skips * self.scale)
        return self.out2(ops.relu(self.out1(h)))


def loss(outputs, targets):
    """Cross entropy without the first samples, which see little of the past."""
    logp = ops.log_softmax(outputs[:, :, WARM:], axis=1)
    index = targets[:, WARM:].astype(ms.int32)
    return -ops.gather_elements(logp, 1, index.expand_dims(1)).mean()
