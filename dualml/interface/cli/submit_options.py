"""Options of ``dualml run`` on the command line of ``dualml submit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from dualml.common.errors import UserError
from dualml.interface.cli.defaults import Defaults, command_options, value_origin

if TYPE_CHECKING:
    from dualml.runner.request import RunRequest

#: Options of ``dualml run`` that a job cannot have, and what to use instead.
FORBIDDEN_OPTIONS = {
    "resume": "dualml resume takes a job up again",
    "rank": "a job starts its own ranks",
    "json": "dualml jobs --json tells how it stands",
}
#: Options of ``dualml run`` that ``dualml submit`` sets itself.
RESERVED_OPTIONS = ("out", "name", "lang", *FORBIDDEN_OPTIONS)


def add_defaults(words: list[str], defaults: Defaults) -> list[str]:
    """Return the words with the defaults from variables and files for options that are omitted;
    ``words`` is not changed.

    Where and when the run starts, they may have other values.
    """
    command = make_run_command()
    context = command.make_context("run", list(words), default_map=defaults.for_command(("run",)))
    more = list[str]()
    for name, parameter in command_options(command).items():
        value = context.params[parameter.name]
        if (
            name not in RESERVED_OPTIONS
            and value_origin(context, parameter.name)
            and value is not False
        ):
            given = [] if value is True else value if parameter.multiple else [value]
            more += [f"--{name}"] * (value is True)
            more += [word for one in given for word in (f"--{name}", str(one))]
    return [*words, *more]


def parse_run_request(words: list[str], refused: Mapping[str, str]) -> RunRequest:
    """Parse the options of ``dualml run``, without variables and files of defaults.

    Raises:
        UserError: an option is in ``refused``, with what to use instead, or a value is one that no
            run accepts.
    """
    from dualml.interface.cli.run import make_request

    command = make_run_command()
    for parameter in command.params:
        parameter.envvar = None
    given: dict[str, Any] = command.make_context("run", list(words)).params
    for name, instead in refused.items():
        if given[name] is not None and given[name] is not False:
            raise UserError(f"submit takes no --{name.replace('_', '-')}: {instead}")
    return make_request(given)


def make_run_command() -> Any:
    """Return the command ``dualml run`` on its own, without the other commands."""
    from typer.main import get_command

    from dualml.interface.cli.run import run

    app = typer.Typer(add_completion=False)
    app.command()(run)
    return get_command(app)
