"""Checks that apply to the options of every command."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from dualml.common.errors import UserError
from dualml.common.parse import DIGITS, INTEGER_BOUND
from dualml.interface.cli.defaults import value_origin


class Command(TyperCommand):
    """Command that accepts only 64-bit integers and finite numbers, checked before it runs.

    Errors about a value from a variable or a file mention where it is set.
    """

    def invoke(self, ctx: Any) -> Any:
        """Check the numbers, run the command, and return what it returns."""
        for name, value in ctx.params.items():
            check_number(f"--{name.strip('_').replace('_', '-')}", value)
        try:
            return super().invoke(ctx)
        except UserError as error:
            for note in value_origins(ctx, str(error)):
                error.add_note(note)
            raise


def value_origins(context: Any, problem: str) -> Iterator[str]:
    """Yield notes about values in an error message that come from a variable or a file, with where
    they are set."""
    for name, value in context.params.items():
        words = [value] if isinstance(value, str | Path) else value if type(value) is list else []
        if any(repr(str(word)) in problem for word in words) and (
            place := value_origin(context, name)
        ):
            yield f" ({place})"


def check_number(option: str, value: Any) -> None:
    """Raise `UserError` for an integer beyond 64 bits or a number that is not finite."""
    if isinstance(value, int) and abs(value) >= INTEGER_BOUND:
        raise UserError(f"{option} must not be {DIGITS}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{option} must be a finite number; received {value}")
