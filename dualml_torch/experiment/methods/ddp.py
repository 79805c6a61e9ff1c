"""One process per part of the batch; gradients are averaged during the backward pass.

Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
"""

from torch.nn.parallel import DistributedDataParallel

from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        self.model = DistributedDataParallel(context.model)
        self.optimizer = context.optimizer(self.model.parameters())
        self.criterion = context.criterion

    def step(self, x, y):
        """Make one update from inputs ``x`` and labels ``y``; return their mean loss before it,
        lazy."""
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        (loss * self.weight).backward()
        self.optimizer.step()
        return loss.detach()
