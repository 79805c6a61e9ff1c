"""The encoder and decoder with GRU cells written by hand and a tied output layer."""

from mindspore import nn, ops
from mindspore.common.initializer import Uniform, initializer
import mindspore as ms


def parameter(shape, name):
    return ms.Parameter(initializer(Uniform(0.3), shape, ms.float32), name=name)


class HandGRU(nn.Cell):
    def __init__(self, size_in, size):
        super().__init__()
        self.w_ih = parameter((3 * size, size_in), "w_ih")
        self.w_hh = parameter((3 * size, size), "w_hh")
        self.b_ih = parameter((3 * size,), "b_ih")
        self.b_hh = parameter((3 * size,), "b_hh")

    def construct(self, x, h):
        gi = ops.dense(x, self.w_ih, self.b_ih)
        gh = ops.dense(h, self.w_hh, self.b_hh)
        i_r, i_z, i_n = ops.chunk(gi, 3, 1)
        h_r, h_z, h_n = ops.chunk(gh, 3, 1)
        r = ops.sigmoid(i_r + h_r)
        z = ops.sigmoid(i_z + h_z)
        n = ops.tanh(i_n + r * h_n)
        return n + z * (h - n)


class Net(nn.Cell):
    def __init__(self, size=10):
        super().__init__()
        self.size = size
        self.src_embed = nn.Embedding(12, size)
        self.encoder_cell = HandGRU(size, size)
        self.tgt_embed = nn.Embedding(14, size)
        self.query = nn.Dense(size, size, has_bias=False)
        self.key = nn.Dense(size, size, has_bias=False)
        self.decoder_cell = HandGRU(2 * size, size)
        self.mix = nn.Dense(2 * size, size, activation="tanh")
        self.classifier = nn.Dense(size, 14)
        self.classifier.weight = self.tgt_embed.embedding_table

    def construct(self, src, tgt):
        x = self.src_embed(src)
        h = ops.zeros((src.shape[0], self.size), ms.float32)
        states = []
        for t in range(src.shape[1]):
            h = self.encoder_cell(x[:, t], h)
            states.append(h)
        memory = ops.stack(states, 1)
        keys = self.key(memory)
        penalty = (src == 0).astype(ms.float32) * -1e4
        y = self.tgt_embed(tgt)
        outputs = []
        for t in range(tgt.shape[1]):
            energy = (self.query(h).expand_dims(1) * keys).sum(-1) * self.size**-0.5
            a = ops.softmax(energy * (penalty == 0) + penalty, -1)
            context = (a.expand_dims(-1) * memory).sum(1)
            h = self.decoder_cell(ops.concat((y[:, t], context), 1), h)
            outputs.append(self.classifier(self.mix(ops.concat((h, context), 1))))
        return ops.stack(outputs, 2)
