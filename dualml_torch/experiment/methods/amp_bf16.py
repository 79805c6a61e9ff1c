"""One process with matrix products in bfloat16, which has float32's range: no loss scaling.

Source: Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training".
"""

import torch

from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        self.model = context.model
        self.optimizer = context.optimizer(self.model.parameters())
        self.criterion = context.criterion
        self.autocast = torch.autocast(context.device.type, torch.bfloat16)

    def step(self, x, y):
        """Make one update from inputs ``x``, a tuple, and labels ``y``; return their mean loss
        before it, a detached tensor."""
        self.optimizer.zero_grad()
        with self.autocast:
            loss = self.criterion(self.model(*x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
