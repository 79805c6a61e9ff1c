"""DistributedDataParallel with the optimizer state sharded among the processes.

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", stage 1.
"""

from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from dualml_torch.methods.base import Base, Given


class Method(Base):
    keeps = False

    def __init__(self, given: Given) -> None:
        self.model = DistributedDataParallel(given.model)
        self.optimizer = ZeroRedundancyOptimizer(
            self.model.parameters(), optimizer_class=given.optimizer
        )
        self.criterion = given.criterion

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        (loss * self.weight).backward()
        self.optimizer.step()
        return loss.detach()
