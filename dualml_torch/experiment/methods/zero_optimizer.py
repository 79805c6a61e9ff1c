"""DistributedDataParallel with the optimizer state sharded among the processes.

Source: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models", stage 1.
"""

from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    is_resumable = False

    def __init__(self, context: MethodContext) -> None:
        self.model = DistributedDataParallel(context.model)
        self.optimizer = ZeroRedundancyOptimizer(
            self.model.parameters(), optimizer_class=context.optimizer
        )
        self.criterion = context.criterion

    def step(self, x, y):
        """Make one update from this process's inputs ``x``, a tuple, and labels ``y``, with
        gradients averaged over the processes; return its own mean loss before it, a detached
        tensor."""
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        (loss * self.weight).backward()
        self.optimizer.step()
        return loss.detach()
