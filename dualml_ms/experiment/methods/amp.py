"""One process with MindSpore's automatic mixed precision, and a scaled loss so that small gradients
do not vanish. An update whose gradients overflow is skipped.

Source: Micikevicius et al. 2018, "Mixed Precision Training".
"""

import mindspore as ms
from mindspore import amp

from dualml_ms.algorithms.model.o1_model import convert_to_o1
from dualml_ms.experiment.methods.base import MethodContext, TrainingMethod


class Method(TrainingMethod):
    is_resumable = False
    changes_model = True

    def __init__(self, context: MethodContext) -> None:
        super().__init__()
        level = context.options["level"]
        if level == "O1":
            self.model = convert_to_o1(context.model)
        else:
            self.model = amp.auto_mixed_precision(context.model, level)
        self.optimizer = context.optimizer(self.model.trainable_params())
        self.criterion = context.criterion
        self.gradient = ms.value_and_grad(self.loss, None, self.optimizer.parameters, has_aux=True)
        self.scaler = amp.DynamicLossScaler(scale_value=2**16, scale_factor=2, scale_window=2000)

    def loss(self, x, y, *masks):
        """Return the batch's mean loss times the loss scale, to differentiate; and unscaled."""
        loss = self.criterion(self.model(x, *masks), y)
        return self.scaler.scale(loss), loss

    def construct(self, x, y, *masks):
        """Make one update, unless a gradient overflows, and adjust the loss scale; return the mean
        loss before it."""
        (_, loss), gradients = self.gradient(x, y, *masks)
        gradients = self.scaler.unscale(gradients)
        finite = amp.all_finite(gradients)
        if finite:
            self.optimizer(gradients)
        self.scaler.adjust(finite)
        return loss
