"""Days, device-hours and money that a number of tokens takes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from dualml.common.errors import UserError
from dualml.common.strict_model import clip_text

#: Suffix of a number of tokens → factor.
SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12, "q": 1e15}
MAX_TOKENS, MAX_PRICE = 1e18, 1e9
HOUR_S, DAY_S = 3600.0, 86400.0


@dataclass(frozen=True)
class TrainingBudget:
    """Time and money for a number of tokens, without failures, evaluation and checkpoints.

    Attributes:
        tokens: tokens to train on.
        updates: number of updates, the last one perhaps on fewer tokens.
        seconds: seconds of all updates.
        device_hours: hours of all devices together.
        cost: price of the device-hours, in the currency of the price; None without a price.
    """

    tokens: float
    updates: int
    seconds: float
    device_hours: float
    cost: float | None

    @property
    def days(self) -> float:
        """Days of all updates."""
        return self.seconds / DAY_S


def plan_budget(
    tokens: float, tokens_per_update: int, update_seconds: float, devices: int, price: float | None
) -> TrainingBudget:
    """Return what ``tokens`` take at ``update_seconds`` for each ``tokens_per_update`` on
    ``devices`` devices, of which each costs ``price`` an hour."""
    updates = math.ceil(tokens / tokens_per_update)
    seconds = updates * update_seconds
    hours = devices * seconds / HOUR_S
    return TrainingBudget(tokens, updates, seconds, hours, None if price is None else hours * price)


def parse_tokens(text: str) -> float:
    """Parse a number of tokens above 0: ``1T``, ``300B``, ``1.4e12``.

    Raises:
        UserError: anything else.
    """
    parts = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+)\s*([kKmMbBtTqQ]?)\s*", text)
    value = float(parts[1]) * SCALES[parts[2].lower()] if parts else 0.0
    if not 0 < value <= MAX_TOKENS:
        raise UserError(
            f"--tokens {clip_text(repr(text))}: write a number above 0 with K, M, B or T, as in 1T"
        )
    return value


def check_price(price: float | None, tokens: str | None) -> None:
    """Raise `UserError` if the price of a device-hour is not from 0 to 10⁹, or ``tokens`` is None,
    so that there is nothing to pay for. Do nothing if ``price`` is None."""
    if price is None:
        return
    if tokens is None:
        raise UserError("--price is the price of a device-hour; give --tokens, too")
    if not 0 <= price <= MAX_PRICE:
        raise UserError(f"--price is from 0 to {MAX_PRICE:,.0f}; received {price:g}")
