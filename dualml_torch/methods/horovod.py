"""Horovod: an optimizer that sums the gradients of all processes before it steps.

Source: Sergeev and Del Balso 2018, "Horovod: fast and easy distributed deep
learning in TensorFlow".
"""

import horovod.torch as hvd

from dualml_torch.methods.base import Base, Given


class Method(Base):
    keeps = False

    def __init__(self, given: Given) -> None:
        hvd.init()
        self.model = given.model
        self.optimizer = hvd.DistributedOptimizer(
            given.optimizer(self.model.parameters()), self.model.named_parameters()
        )
        self.criterion = given.criterion

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        (loss * self.weight).backward()
        self.optimizer.step()
        return loss.detach()

    @property
    def processes(self):
        return hvd.size()
