import mindspore as ms
import numpy as np
from mindspore import nn, ops
from mindspore.dataset import NumpySlicesDataset

from dualml_ms.record import Recorder

ms.set_context(mode=ms.PYNATIVE_MODE)
r = np.random.default_rng(26)
cell = nn.SequentialCell(nn.Dense(6, 12), nn.ReLU(), nn.Dense(12, 3))
for p in cell.get_parameters():
    p.set_data(ms.Tensor(r.normal(size=p.shape).astype("float32") * 0.3))
x, y = r.normal(size=(20, 6)).astype("float32"), r.integers(0, 3, 20)
data = NumpySlicesDataset({"x": x, "y": y}, shuffle=False).batch(8, drop_remainder=True)
optimizer = nn.SGD(cell.trainable_params(), 0.1)
recorder = Recorder(cell, "trace-ms", optimizer, steps=4)
gradient = ms.value_and_grad(lambda x, y: ops.cross_entropy(cell(x), y), None, optimizer.parameters)


def update(x, y):
    loss, gradients = gradient(x, y)
    recorder.saw(loss=loss, gradients=gradients)
    optimizer(gradients)


for _ in range(2):
    for x, y in data.create_tuple_iterator():
        recorder.run(update, x, y.astype(ms.int32))
