"""One process per part of the batch, in MindSpore's data parallel mode, which gives the reducer its
mean and degree."""

import mindspore as ms
from mindspore import nn

from dualml_ms.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    def __init__(self, context: MethodContext) -> None:
        super().__init__()
        ms.set_auto_parallel_context(
            parallel_mode=ms.ParallelMode.DATA_PARALLEL,
            gradients_mean=True,
            device_num=context.processes,
            global_rank=context.rank,
        )
        self.model = context.model
        self.optimizer = context.optimizer(self.model.trainable_params())
        self.criterion = context.criterion
        self.gradient = ms.value_and_grad(self.loss, None, self.optimizer.parameters, has_aux=True)
        self.reducer = nn.DistributedGradReducer(
            self.optimizer.parameters, degree=context.processes, group=context.group
        )

    def loss(self, x, y, *masks):
        """Return the batch's mean loss weighted for the mean over the processes, to differentiate;
        and unweighted."""
        loss = self.criterion(self.model(x, *masks), y)
        return loss * self.weight, loss

    def construct(self, x, y, *masks):
        """Make one update with the gradients averaged over the processes; return this process's
        mean loss before it."""
        (_, loss), gradients = self.gradient(x, y, *masks)
        self.optimizer(self.reducer(gradients))
        return loss
