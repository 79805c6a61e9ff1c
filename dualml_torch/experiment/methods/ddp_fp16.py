"""DistributedDataParallel around a model with matrix products in float16 and a scaled loss;
parameters and averaged gradients are float32. An overflow on one process makes the average infinite
on all of them: all skip the same updates.

Source: Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training";
Micikevicius et al. 2018, "Mixed Precision Training".
"""

import torch
from torch.nn.parallel import DistributedDataParallel

from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    is_resumable = False

    def __init__(self, context: MethodContext) -> None:
        self.model = DistributedDataParallel(context.model)
        self.optimizer = context.optimizer(self.model.parameters())
        self.criterion = context.criterion
        self.autocast = torch.autocast(context.device.type, torch.float16)
        self.scaler = torch.amp.GradScaler(context.device.type)

    def step(self, x, y):
        """Make one update from this process's inputs ``x``, a tuple, and labels ``y``, with
        gradients averaged over the processes; return its own mean loss before it, a detached
        tensor. Nothing is updated if a gradient overflows."""
        self.optimizer.zero_grad()
        with self.autocast:
            loss = self.criterion(self.model(*x), y)
        self.scaler.scale(loss * self.weight).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()
