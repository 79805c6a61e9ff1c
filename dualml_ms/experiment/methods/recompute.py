"""One process with activation recomputation: only the input of every block is saved, and the rest
is recomputed in the backward pass.

Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
"""

import mindspore as ms

from dualml.algorithms.model.recompute import residual_blocks
from dualml_ms.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        super().__init__()
        self.model = context.model
        self.model.set_recompute(residual_blocks(self.model.spec))
        self.optimizer = context.optimizer(self.model.trainable_params())
        self.criterion = context.criterion
        self.gradient = ms.value_and_grad(self.loss, None, self.optimizer.parameters)

    def loss(self, x, y, *masks):
        """Return the mean loss of the batch."""
        return self.criterion(self.model(x, *masks), y)

    def construct(self, x, y, *masks):
        """Make one update, with activations recomputed in the backward pass; return the mean loss
        before it."""
        loss, gradients = self.gradient(x, y, *masks)
        self.optimizer(gradients)
        return loss
