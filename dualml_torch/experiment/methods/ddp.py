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
        """Make one update from this process's inputs ``x``, a tuple, and labels ``y``, with
        gradients averaged over the processes; return its own mean loss before it, a detached
        tensor."""
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        (loss * self.weight).backward()
        self.optimizer.step()
        return loss.detach()
