"""Methods: dynamic loss scaling for training in float16, in MindSpore."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import Parameter, Tensor, ops


class LossScaler:
    """Gradient descent on float32 weights by float16 gradients of a scaled loss.

    The loss is multiplied by ``scale`` before the backward pass, so that small gradients do not
    vanish in float16. An update divides the gradients by it, in float32. If one of them is
    infinite or no number (an overflow), nothing is updated and the scale falls; after ``interval``
    updates in a row without an overflow it rises, and the counting begins anew.

    Args:
        scale: at first.
        growth, backoff: what the scale is multiplied with when it rises, when it falls.
        interval: updates in a row after which it rises.

    Attributes:
        scale: now.
    """

    def __init__(
        self,
        scale: float = 65536.0,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
    ) -> None:
        self.scale, self.growth, self.backoff, self.interval = scale, growth, backoff, interval
        # solution: begin pass
        self.good = 0
        # solution: end

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the scaled loss, with which the backward pass begins."""
        # solution: begin
        return loss * self.scale
        # solution: end

    def step(self, weights: Sequence[Parameter], gradients: Sequence[Tensor], lr: float) -> bool:
        """θ ← θ − η·g/scale for each of the float32 ``weights``, in place; whether it was done.

        Args:
            gradients: float16, of the scaled loss, one for each weight.
        """
        # solution: begin
        if not all(bool(ops.isfinite(g).all()) for g in gradients):
            self.scale *= self.backoff
            self.good = 0
            return False
        for weight, gradient in zip(weights, gradients, strict=True):
            ops.assign_sub(weight, lr * (gradient.astype(ms.float32) / self.scale))
        self.good += 1
        if self.good == self.interval:
            self.scale *= self.growth
            self.good = 0
        return True
        # solution: end
