"""As ``reducer``, with gradients of four micro-batches added up before they are averaged.

The processes talk once an update, whatever the number of micro-batches; it has to be the same on
all of them: they match their messages by order, which differs between graphs.
"""

import mindspore as ms
from mindspore import nn

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

    def loss(self, share, x, y, *masks):
        loss = self.criterion(self.model(x, *masks), y) * share
        return loss * self.weight, loss

    def construct(self, *batch):
        size = len(batch[1])
        count = min(4, size)
        total, sums = 0.0, []
        for k in range(count):
            part = [tensor[k * size // count : (k + 1) * size // count] for tensor in batch]
            (_, loss), gradients = self.gradient(len(part[1]) / size, *part)
            total = total + loss
            sums = [sums[i] + g for i, g in enumerate(gradients)] if sums else gradients
        self.optimizer(self.reducer(tuple(sums)))
        return total
