"""The method ``reducer`` with the gradients of four micro-batches accumulated before averaging.

The processes communicate once per update, in a graph of the last micro-batch alone: they match
messages by order, which would differ between graphs with different numbers of micro-batches.
"""

import mindspore as ms
import numpy as np
from mindspore import nn, ops

from dualml_ms.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        super().__init__()
        self.model = context.model
        self.optimizer = context.optimizer(self.model.trainable_params())
        self.criterion = context.criterion
        self.gradient = ms.value_and_grad(self.loss, None, self.optimizer.parameters, has_aux=True)
        self.reducer = nn.DistributedGradReducer(
            self.optimizer.parameters, mean=True, degree=context.processes, group=context.group
        )
        self.sums = self.optimizer.parameters.clone(prefix="sums", init="zeros")

    def loss(self, share, x, y, *masks):
        """Return ``share`` times a micro-batch's mean loss, weighted for the mean over the
        processes, to differentiate; and without that weight."""
        loss = self.criterion(self.model(x, *masks), y) * share
        return loss * self.weight, loss

    def construct(self, last, share, x, y, *masks):
        """Add a micro-batch's gradients to the sums; after the ``last`` one average the sums over
        the processes, update, and clear them. Return ``share`` times the mean loss."""
        (_, loss), gradients = self.gradient(share, x, y, *masks)
        for i, gradient in enumerate(gradients):
            ops.assign_add(self.sums[i], gradient)
        if last:
            self.optimizer(self.reducer(self.sums))
            for total in self.sums:
                ops.assign(total, ops.zeros_like(total))
        return loss

    def run_steps(self, batches):
        """Make an update for each batch, a tuple of arrays of samples, labels and masks; return
        their mean losses on this process."""
        return [self.update(batch) for batch in batches]

    def update(self, batch):
        """Make one update with ``batch``, a tuple of arrays, cut into four micro-batches (fewer if
        it has fewer samples); return its mean loss on this process."""
        samples = len(batch[0])
        micro = [np.array_split(array, min(4, samples)) for array in batch]
        total = 0.0
        for number, part in enumerate(zip(*micro, strict=True), start=1):
            share = ms.Tensor(len(part[0]) / samples, ms.float32)
            total += self(number == len(micro[0]), share, *map(ms.Tensor.from_numpy, part))
        return total
