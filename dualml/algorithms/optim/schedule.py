"""Learning-rate schedules, framework-neutral: the same float at the same update on every
backend."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dualml.common.errors import UserError
from dualml.common.json_types import JsonObject

Kind = Literal["constant", "step", "cosine"]


def is_number(value: Any) -> bool:
    """Return whether a value is an int or a float, but no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    """Return whether a value is an int, but no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class LRSchedule:
    """Factor c(t) that multiplies the learning rate at update t = 1, 2, …

    With w = ``warmup``, the first w updates rise linearly, c(t) = t/w (Goyal et al. 2017,
    "Accurate, Large Minibatch SGD", sec. 2.2). After them, with u = t - 1 - w updates already made:

    - ``constant``: c = 1
    - ``step``: c = gamma^⌊u / every⌋ (torch's ``StepLR``)
    - ``cosine``: c = floor + (1 - floor)·(1 + cos(π·min(u, T)/T))/2 with T = ``total`` - w
      (Loshchilov & Hutter 2017, "SGDR", eq. 5, without restarts)

    Args:
        kind: ``constant``, ``step`` or ``cosine``.
        every: updates between two drops of ``step``, >= 1.
        gamma: factor of each drop, in (0, 1].
        total: updates after which ``cosine`` has come down to ``floor``: update ``total`` + 1 is
            the first to use it, as with torch's ``CosineAnnealingLR``; 0 means the trial's length.
        floor: smallest factor of ``cosine``, in [0, 1].
        warmup: updates of linear warm-up, >= 0.

    Raises:
        UserError: a value outside of its range.

    Example:
        >>> LRSchedule(kind="step", every=2, gamma=0.5).factors(5)
        [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    kind: Kind = "constant"
    every: int = 1000
    gamma: float = 0.1
    total: int = 0
    floor: float = 0.0
    warmup: int = 0

    def __post_init__(self) -> None:
        rules = {
            "kind must be constant, step or cosine": self.kind in ("constant", "step", "cosine"),
            "every must be an integer >= 1": is_integer(self.every) and self.every >= 1,
            "gamma must lie in (0, 1]": is_number(self.gamma) and 0 < self.gamma <= 1,
            "total must be an integer >= 0": is_integer(self.total) and self.total >= 0,
            "floor must lie in [0, 1]": is_number(self.floor) and 0 <= self.floor <= 1,
            "warmup must be an integer >= 0": is_integer(self.warmup) and self.warmup >= 0,
            "total must exceed warmup": not (is_integer(self.total) and is_integer(self.warmup))
            or not self.total
            or self.total > self.warmup,  # of another type it is refused above
        }
        for rule, holds in rules.items():
            if not holds:
                field = rule.split()[0]
                raise UserError(f"schedule: {rule}; received {field}={getattr(self, field)!r}")

    @property
    def constant(self) -> bool:
        """Whether the kind is ``constant`` without warm-up: every update then has the optimizer's
        own learning rate."""
        return self.kind == "constant" and not self.warmup

    def factor(self, step: int, updates: int = 0) -> float:
        """Return c of update ``step``, from 1. ``updates`` is the trial's length, which only
        ``cosine`` needs, where ``total`` is 0."""
        if step <= self.warmup:
            return step / self.warmup
        done = step - 1 - self.warmup
        if self.kind == "step":
            return float(self.gamma ** (done // self.every))
        if self.kind == "cosine":
            length = max((self.total or updates) - self.warmup, 1)
            wave = (1 + math.cos(math.pi * min(done, length) / length)) / 2
            return self.floor + (1 - self.floor) * wave
        return 1.0

    def factors(self, updates: int) -> list[float]:
        """Return the factors c(1) … c(``updates``) of a trial of that many updates."""
        return [self.factor(step, updates) for step in range(1, updates + 1)]

    def describe(self) -> JsonObject:
        """Return the fields as JSON values."""
        return asdict(self)
