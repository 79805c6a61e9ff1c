"""As ``reducer``, with gradients of four micro-batches added up before they are averaged.

The processes talk once an update, whatever the number of micro-batches.
"""

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml_ms.methods.base import Base, Given


class Method(Base):
    def __init__(self, given: Given) -> None:
        super().__init__()
        self.model = given.model
        self.optimizer = given.optimizer(self.model.trainable_params())
        self.criterion = given.criterion
        self.gradient = ms.value_and_grad(self.loss, None, self.optimizer.parameters, has_aux=True)
        self.reducer = nn.DistributedGradReducer(
            self.optimizer.parameters, mean=True, degree=given.processes, group=given.group
        )
        self.sums = self.optimizer.parameters.clone(prefix="sums", init="zeros")

    def loss(self, share, x, y, *masks):
        loss = self.criterion(self.model(x, *masks), y) * share
        return loss * self.weight, loss

    def construct(self, last, share, x, y, *masks):
        (_, loss), gradients = self.gradient(share, x, y, *masks)
        for total, gradient in zip(self.sums, gradients):
            ops.assign_add(total, gradient)
        if last:
            self.optimizer(self.reducer(self.sums))
            for total in self.sums:
                ops.assign(total, ops.zeros_like(total))
        return loss

    def steps(self, batches):
        return [self.update(batch) for batch in batches]

    def update(self, batch):
        total, (_, y, *_) = 0.0, batch
        micro = list(zip(*(np.array_split(array, min(4, len(y))) for array in batch), strict=True))
        for number, part in enumerate(micro, start=1):
            share = ms.Tensor(len(part[0]) / len(y), ms.float32)
            total += self(number == len(micro), share, *map(ms.Tensor.from_numpy, part))
        return total
