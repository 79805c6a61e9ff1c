"""Options of ``dualml run`` on the command line of ``dualml submit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from dualml.common.errors import UserError
from dualml.interface.cli.defaults import Defaults, command_options, value_origin

if TYPE_CHECKING:
    from dualml.experiment.schema import Experiment

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


def parse_run_options(words: list[str], refused: Mapping[str, str]) -> dict[str, Any]:
    """Parse the options of ``dualml run``, as name → value, without variables and files of
    defaults.

    Raises:
        UserError: an option is in ``refused``, with what to use instead.
    """
    command = make_run_command()
    for parameter in command.params:
        parameter.envvar = None
    given: dict[str, Any] = command.make_context("run", list(words)).params
    for name, instead in refused.items():
        if given[name] is not None and given[name] is not False:
            raise UserError(f"submit takes no --{name.replace('_', '-')}: {instead}")
    return given


def make_run_command() -> Any:
    """Return the command ``dualml run`` on its own, without the other commands."""
    from typer.main import get_command

    from dualml.interface.cli.run import run

    app = typer.Typer(add_completion=False)
    app.command()(run)
    return get_command(app)


def load_experiment(given: Mapping[str, Any], world_size: int | None) -> Experiment:
    """Load the experiment that options of ``dualml run`` describe, with this number of ranks
    instead of theirs; None: as the experiment defines it."""
    from dualml.experiment.load import load
    from dualml.interface.cli.run import parse_seeds

    return load(
        given["lab"],
        overrides=given["set_"] or [],
        arms=given["arm"] or [],
        seeds=parse_seeds(given["seed"] or []),
        data=given["data"],
        quick=given["quick"],
        model=given["model"],
        world_size=world_size,
    )
