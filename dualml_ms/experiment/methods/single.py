"""One process: the loop that all other files here vary."""

import mindspore as ms

from dualml_ms.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        super().__init__()
        self.model = context.model
        self.optimizer = context.optimizer(self.model.trainable_params())
        self.criterion = context.criterion
        self.gradient = ms.value_and_grad(self.loss, None, self.optimizer.parameters)

    def loss(self, x, y, *masks):
        """Return the mean loss of the batch."""
        return self.criterion(self.model(x, *masks), y)

    def construct(self, x, y, *masks):
        """Make one update with the batch; return its mean loss before the update."""
        loss, gradients = self.gradient(x, y, *masks)
        self.optimizer(gradients)
        return loss
