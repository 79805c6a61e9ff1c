"""One process that splits every batch over its GPUs and copies the model to them each time."""

import torch

from dualml.common.errors import Unsupported
from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        if (count := torch.cuda.device_count()) < 2:  # with one, or on a CPU, it does nothing
            raise Unsupported(f"torch.nn.DataParallel needs two GPUs; there are {count}")
        self.model = torch.nn.DataParallel(context.model)
        self.optimizer = context.optimizer(self.model.parameters())
        self.criterion = context.criterion

    def step(self, x, y):
        """Make one update from inputs ``x``, a tuple, and labels ``y``, split over this process's
        GPUs; return the mean loss of all of them before it, a detached tensor."""
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
