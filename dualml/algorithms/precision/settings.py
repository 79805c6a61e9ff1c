"""The precision settings of a training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dualml.algorithms.precision.scaling import Scaler
from dualml.common.errors import UserError

PRECISIONS = ("fp32", "bf16", "fp16")
LossScale = float | Literal["dynamic"] | None


@dataclass(frozen=True)
class Precision:
    """Type of the matrix products, and how the loss is scaled: ``dynamic``, by a constant, or not
    at all.

    Raises:
        UserError: an unknown type; a loss scale with float32, or one that is not above 0 and
            finite.
    """

    type: str = "fp32"
    loss_scale: LossScale = None

    def __post_init__(self) -> None:
        if self.type not in PRECISIONS:
            raise UserError(f"precision is one of {', '.join(PRECISIONS)}; received {self.type!r}")
        if self.loss_scale is None:
            return
        if self.type == "fp32":
            raise UserError(
                f"loss_scale = {self.loss_scale} is for low-precision gradients; "
                "leave it out, or set precision = fp16 or bf16"
            )
        if self.loss_scale != "dynamic" and not 0 < self.loss_scale < float("inf"):
            raise UserError(f'loss_scale is "dynamic" or above 0; received {self.loss_scale}')

    @property
    def is_low(self) -> bool:
        """Whether the type is lower than float32."""
        return self.type != "fp32"

    def make_scaler(self) -> Scaler | None:
        """Return a new loss scaler, dynamic or of a constant scale; None where the loss is not
        scaled."""
        if self.loss_scale is None:
            return None
        return Scaler(None if self.loss_scale == "dynamic" else self.loss_scale)


FULL = Precision()
