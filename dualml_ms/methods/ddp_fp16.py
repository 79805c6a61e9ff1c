"""The method ``reducer`` with MindSpore's automatic mixed precision and a scaled loss; parameters
and averaged gradients are float32. An overflow on one process makes the average non-finite on all
of them: all skip the same updates.

Source: Micikevicius et al. 2018, "Mixed Precision Training".
"""

import mindspore as ms
from mindspore import amp, nn

from dualml_ms.methods.base import Base, Given


class Method(Base):
    keeps = False
    alters = True

    def __init__(self, given: Given) -> None:
        super().__init__()
        self.model = amp.auto_mixed_precision(given.model, "auto")
        self.optimizer = given.optimizer(self.model.trainable_params())
        self.criterion = given.criterion
        self.gradient = ms.value_and_grad(self.loss, None, self.optimizer.parameters, has_aux=True)
        self.reducer = nn.DistributedGradReducer(
            self.optimizer.parameters, mean=True, degree=given.processes, group=given.group
        )
        self.scaler = amp.DynamicLossScaler(scale_value=2**16, scale_factor=2, scale_window=2000)

    def loss(self, x, y, *masks):
        loss = self.criterion(self.model(x, *masks), y)
        return self.scaler.scale(loss * self.weight), loss

    def construct(self, x, y, *masks):
        (_, loss), gradients = self.gradient(x, y, *masks)
        gradients = self.scaler.unscale(self.reducer(gradients))
        finite = amp.all_finite(gradients)
        if finite:
            self.optimizer(gradients)
        self.scaler.adjust(finite)
        return loss
