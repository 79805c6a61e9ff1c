"""DistributedDataParallel with the gradients of four micro-batches accumulated before averaging.

The processes communicate once per update, whatever the number of micro-batches.
"""

from contextlib import nullcontext

from torch.nn.parallel import DistributedDataParallel

from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        self.model = DistributedDataParallel(context.model)
        self.optimizer = context.optimizer(self.model.parameters())
        self.criterion = context.criterion

    def step(self, x, y):
        """Make one update from this process's inputs ``x``, a tuple, and labels ``y``, in up to
        four micro-batches, with gradients averaged over the processes once; return its own mean
        loss before it, a detached tensor."""
        self.optimizer.zero_grad()
        total = 0.0
        micro = list(zip(*(tensor.chunk(4) for tensor in (*x, y)), strict=True))
        for number, (*part, labels) in enumerate(micro, start=1):
            last = number == len(micro)
            with nullcontext() if last else self.model.no_sync():
                loss = self.criterion(self.model(*part), labels) * (len(labels) / len(y))
                (loss * self.weight).backward()
            total += loss.detach()
        self.optimizer.step()
        return total
