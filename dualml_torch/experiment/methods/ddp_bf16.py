"""DistributedDataParallel around a model with matrix products in bfloat16; parameters and averaged
gradients are float32.

Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training";
Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training".
"""

import torch
from torch.nn.parallel import DistributedDataParallel

from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        self.model = DistributedDataParallel(context.model)
        self.optimizer = context.optimizer(self.model.parameters())
        self.criterion = context.criterion
        self.autocast = torch.autocast(context.device.type, torch.bfloat16)

    def step(self, x, y):
        """Make one update from this process's inputs ``x``, a tuple, and labels ``y``, with
        gradients averaged over the processes; return its own mean loss before it, a detached
        tensor."""
        self.optimizer.zero_grad()
        with self.autocast:
            loss = self.criterion(self.model(*x), y)
        (loss * self.weight).backward()
        self.optimizer.step()
        return loss.detach()
