import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml_ms.record import Recorder

ms.set_context(mode=ms.PYNATIVE_MODE)
SCALE = 1024.0
r = np.random.default_rng(9)
cell = nn.SequentialCell(nn.Dense(10, 16), nn.ReLU(), nn.Dense(16, 3))
for p in cell.get_parameters():
    p.set_data(ms.Tensor(r.normal(size=p.shape).astype("float32") * 0.3))
optimizer = nn.Momentum(cell.trainable_params(), 0.1, 0.9, loss_scale=SCALE)
recorder = Recorder(cell, "trace-ms", optimizer, steps=3)
gradient = ms.value_and_grad(
    lambda x, y: ops.cross_entropy(cell(x), y) * SCALE, None, optimizer.parameters
)


def update(x, y):
    loss, gradients = gradient(x, y)
    gradients = tuple(g / SCALE for g in gradients)
    recorder.saw(loss=loss / SCALE, gradients=gradients)
    optimizer(gradients)


for _ in range(4):
    x, y = r.normal(size=(16, 10)).astype("float32"), r.integers(0, 3, 16)
    recorder.run(update, ms.Tensor(x), ms.Tensor(y, ms.int32))
