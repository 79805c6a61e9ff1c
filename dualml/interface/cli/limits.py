"""Checks that apply to the options of every command."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from dualml.common.errors import UserError
from dualml.common.parse import DIGITS, INTEGER_BOUND
from dualml.interface.cli.defaults import value_origin
from dualml.interface.cli.help_page import print_help_page


class Command(TyperCommand):
    """Command that accepts only 64-bit integers and finite numbers, checked before it runs, and has
    dualml's own help page.

    A `UserError` that quotes a text or path from a variable or a file mentions where it is set.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help page; the formatter stays empty."""
        print_help_page(self, ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line into ``ctx`` and return the remaining words; numbers are checked
        later, in `invoke`. ASCII texts, and options without a value, skip the parser's own check,
        which is slow to import (`accept_texts`)."""
        accept_texts(self.get_params(ctx))
        return super().parse_args(ctx, args)

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


def accept_texts(parameters: Iterable[Any]) -> None:
    """Change parameters in place so that they accept no value, and those that take any text an
    ASCII one, without the parser's own check.

    That check changes nothing about such a text, and the first one imports pydantic, which takes
    longer than everything else that a short command does.
    """
    for parameter in parameters:
        is_single = not parameter.multiple and parameter.nargs == 1
        if is_single and not isinstance(parameter.process_value, partial):  # else it does already
            parameter.process_value = partial(process_text, parameter, parameter.process_value)


def process_text(parameter: Any, check: Callable[..., Any], context: Any, value: Any) -> Any:
    """Return the value of a parameter, by its callback if it has one. Anything but an ASCII text
    for a parameter of texts, or no value for one that needs none, goes through ``check``, the
    parser's own check, instead."""
    is_text = parameter.type_descriptor.annotation is str and type(value) is str
    if not (value.isascii() if is_text else value is None and not parameter.required):
        return check(context, value)
    return value if parameter.callback is None else parameter.callback(context, parameter, value)


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
