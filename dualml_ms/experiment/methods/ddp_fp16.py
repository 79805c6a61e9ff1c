"""The method ``reducer`` with MindSpore's automatic mixed precision and a scaled loss; parameters
and averaged gradients are float32. An overflow on one process makes the average non-finite on all
of them: all skip the same updates.

Source: Micikevicius et al. 2018, "Mixed Precision Training".
"""

import mindspore as ms
from mindspore import amp, nn

from dualml_ms.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    is_resumable = False
    changes_model = True

    def __init__(self, context: MethodContext) -> None:
        super().__init__()
        self.model = amp.auto_mixed_precision(context.model, "auto")
        self.optimizer = context.optimizer(self.model.trainable_params())
        self.criterion = context.criterion
        self.gradient = ms.value_and_grad(self.loss, None, self.optimizer.parameters, has_aux=True)
        self.reducer = nn.DistributedGradReducer(
            self.optimizer.parameters, mean=True, degree=context.processes, group=context.group
        )
        self.scaler = amp.DynamicLossScaler(scale_value=2**16, scale_factor=2, scale_window=2000)

    def loss(self, x, y, *masks):
        """Return the batch's mean loss weighted for the mean over the processes and scaled, to
        differentiate; and neither weighted nor scaled."""
        loss = self.criterion(self.model(x, *masks), y)
        return self.scaler.scale(loss * self.weight), loss

    def construct(self, x, y, *masks):
        """Make one update with the averaged gradients, unless one overflows, and adjust the loss
        scale; return this process's mean loss before it."""
        (_, loss), gradients = self.gradient(x, y, *masks)
        gradients = self.scaler.unscale(self.reducer(gradients))
        finite = amp.all_finite(gradients)
        if finite:
            self.optimizer(gradients)
        self.scaler.adjust(finite)
        return loss
