"""Learning rates in a form that `mindspore.nn.Optimizer` uses without loss of precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

from dualml.common.errors import UserError

Rate = float | Iterable[float] | LearningRateSchedule


class ConstantRate(LearningRateSchedule):
    """A schedule with the same rate at every step."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = ms.Tensor(rate, ms.float32)

    def construct(self, global_step):
        """Return the float32 rate, whatever the step."""
        return self.rate


def unify_rates(rate: Rate, parameters: list[Any]) -> Rate:
    """Validate the rates of the optimizer and of its groups (`UserError`); return that of the
    optimizer and replace those of the groups in place.

    If any of them changes with the step, all become schedules: among changing rates, nn.Optimizer
    would add 1 to a fixed one and subtract it again, which changes 1e-4 by two parts in ten
    thousand.
    """
    groups = [g for g in parameters if isinstance(g, dict) and "lr" in g]
    rates = [_check_rate(r) for r in [rate, *(g["lr"] for g in groups)]]
    if len({isinstance(r, float) for r in rates}) == 2:
        rates = [ConstantRate(r) if isinstance(r, float) else r for r in rates]
    for group, value in zip(groups, rates[1:], strict=True):
        group["lr"] = value
    return rates[0]


def _check_rate(rate: Rate) -> Any:
    """Return the rate as a float, a float32 tensor with one value per step, or the given schedule,
    whose rates are not checked; raise `UserError` if a rate is negative or not finite, or there is
    none."""
    if isinstance(rate, LearningRateSchedule):
        return rate
    values = rate.asnumpy() if isinstance(rate, ms.Tensor) else np.asarray(rate, np.float64)
    if values.size == 0 or values.ndim > 1 or not (np.isfinite(values) & (values >= 0)).all():
        raise UserError(f"learning rates must be finite and >= 0; received {rate!r}")
    return float(values) if values.ndim == 0 else ms.Tensor(values.astype(np.float32))
