"""One process with activation recomputation: only the input of every block is saved, and the rest
is recomputed in the backward pass.

Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
"""

from dualml.algorithms.model.recompute import residual_blocks
from dualml_torch.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        self.model = context.model
        self.model.set_recompute(residual_blocks(self.model.spec))
        self.optimizer = context.optimizer(self.model.parameters())
        self.criterion = context.criterion

    def step(self, x, y):
        """Make one update from inputs ``x``, a tuple, and labels ``y``; return their mean loss
        before it, a detached tensor."""
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(*x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
