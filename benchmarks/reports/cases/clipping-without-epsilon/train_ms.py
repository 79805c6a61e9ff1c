import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml_ms.record import Recorder

ms.set_context(mode=ms.PYNATIVE_MODE)
r = np.random.default_rng(63)
cell = nn.SequentialCell(nn.Dense(8, 10), nn.ReLU(), nn.Dense(10, 1))
for p in cell.get_parameters():
    p.set_data(ms.Tensor(r.normal(size=p.shape).astype("float32") * 0.1))
optimizer = nn.SGD(cell.trainable_params(), 1.0)
recorder = Recorder(cell, "trace-ms", optimizer, steps=2)
gradient = ms.value_and_grad(
    lambda x, y: ops.mse_loss(0.2 * cell(x), y), None, optimizer.parameters
)


def update(x, y):
    loss, gradients = gradient(x, y)
    norm = ops.sqrt(sum((g * g).sum() for g in gradients))
    gradients = tuple(g * ops.minimum(ms.Tensor(1.0), 0.01 / norm) for g in gradients)
    recorder.saw(loss=loss, gradients=gradients)
    optimizer(gradients)


for _ in range(3):
    x, y = r.normal(size=(16, 8)).astype("float32"), r.normal(size=(16, 1)).astype("float32")
    recorder.run(update, ms.Tensor(x), ms.Tensor(y))
