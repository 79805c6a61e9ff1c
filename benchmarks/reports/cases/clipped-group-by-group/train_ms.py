import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml_ms.record import Recorder

ms.set_context(mode=ms.PYNATIVE_MODE)
r = np.random.default_rng(8)
cell = nn.SequentialCell(nn.Dense(12, 20), nn.Tanh(), nn.Dense(20, 4))
for p in cell.get_parameters():
    p.set_data(ms.Tensor(r.normal(size=p.shape).astype("float32") * 0.4))
optimizer = nn.SGD(cell.trainable_params(), 0.1)
recorder = Recorder(cell, "trace-ms", optimizer, steps=2)
gradient = ms.value_and_grad(
    lambda x, y: ops.cross_entropy(4 * cell(x), y), None, optimizer.parameters
)


def clip(gradients, most=1.0):
    norm = ops.sqrt(sum((g * g).sum() for g in gradients))
    return [g * ops.minimum(ms.Tensor(1.0), most / (norm + 1e-6)) for g in gradients]


def update(x, y):
    loss, gradients = gradient(x, y)
    matrices, biases = clip(gradients[0::2]), clip(gradients[1::2])
    gradients = tuple(g for pair in zip(matrices, biases) for g in pair)
    recorder.saw(loss=loss, gradients=gradients)
    optimizer(gradients)


for _ in range(3):
    x, y = r.normal(size=(16, 12)).astype("float32"), r.integers(0, 4, 16)
    recorder.run(update, ms.Tensor(x), ms.Tensor(y, ms.int32))
