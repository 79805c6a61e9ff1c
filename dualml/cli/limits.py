"""Numbers of options within limits, whatever the command: checked before any of them is used."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

from dualml.errors import UserError
from dualml.parse import DIGITS, LARGEST

C = TypeVar("C", bound=Callable[..., None])


def limited(command: C) -> C:
    """The command, for whole numbers of 64 bits and finite ones only."""

    @functools.wraps(command)
    def checked(**options: Any) -> None:
        for name, value in options.items():
            check(f"--{name.strip('_').replace('_', '-')}", value)
        command(**options)

    return checked  # type: ignore[return-value]


def check(option: str, value: Any) -> None:
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise UserError(f"{option} must not be {DIGITS}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{option} must be a finite number; received {value}")
