"""One process with matrix products in float16, and a scaled loss so that small gradients do not
vanish.

Source: Micikevicius et al. 2018, "Mixed Precision Training".
"""

import torch

from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    is_resumable = False

    def __init__(self, context: MethodContext) -> None:
        self.model = context.model
        self.optimizer = context.optimizer(self.model.parameters())
        self.criterion = context.criterion
        self.autocast = torch.autocast(context.device.type, torch.float16)
        self.scaler = torch.amp.GradScaler(context.device.type)

    def step(self, x, y):
        """Make one update from inputs ``x``, a tuple, and labels ``y``; return their mean loss
        before it, a detached tensor. Nothing is updated if a gradient overflows."""
        self.optimizer.zero_grad()
        with self.autocast:
            loss = self.criterion(self.model(*x), y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()
