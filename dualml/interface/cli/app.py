"""The commands of ``dualml``; the module of each is imported when the command is needed."""

from __future__ import annotations

import os
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

from dualml.common.version import __version__
from dualml.interface.cli.command_group import CommandGroup, CommandTable
from dualml.interface.cli.help import HELP
from dualml.interface.cli.options import LANG

#: The commands in the order of ``--help``, with the modules that define them where those have
#: another name; the function has the name of the command, with _ where Python has it already.
COMMANDS = (
    *("run", "results:report", "results:parity", "compare", "compare_runs:baseline"),
    *("results:find", "experiments:list_", "experiments:show", "simulate", "plan", "largest"),
    *("partition", "split", "generate", "doctor", "capabilities", "diffs", "bench"),
    *("course:new", "course:check", "grade", "jobs", "jobs:status", "jobs:logs", "jobs:stop"),
    *("jobs:resume", "tensorboard", "serve", "top", "export", "runs", "open:open_", "clean"),
    *("config", "schema", "submit", "demo"),
)
#: Groups of commands: the application ``app`` of the module with that name.
GROUPS = ("data", "checkpoint")
#: Other options of `submit` are passed on to `dualml run`; everything after -- is a command.
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


class RootGroup(CommandGroup):
    """The group of all commands; none is imported before it is needed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        places = [place.rpartition(":") for place in COMMANDS]
        commands: Any = CommandTable(
            {
                **{
                    name.rstrip("_"): partial(build_command, module or name, name)
                    for module, _, name in places
                },
                **{name: partial(build_group, name) for name in GROUPS},
            }
        )
        self.commands = commands


def build_command(module: str, name: str) -> Any:
    """Import a module of this package, and return the command that calls its function ``name``."""
    from dualml.interface.cli.limits import Command

    function = getattr(import_module(f"dualml.interface.cli.{module}"), name)
    settings: dict[str, Any] = {"cls": Command}
    if name == "submit":
        from dualml.interface.cli.separator import SubmitCommand

        settings = {"cls": SubmitCommand, "context_settings": PASS_THROUGH}
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name.rstrip("_"), **settings)(function)
    return get_command(single)


def build_group(name: str) -> Any:
    """Import a module of this package, and return the group of commands of its application."""
    return get_command(import_module(f"dualml.interface.cli.{name}").app)


app = typer.Typer(
    name="dualml",
    cls=RootGroup,
    no_args_is_help=True,
    suggest_commands=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": [*HELP]},
)


def print_version(asked: bool) -> None:
    """Print the version and exit if ``asked``; else do nothing."""
    if asked:
        typer.echo(f"dualml {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True)
    ] = False,
    lang: Annotated[str | None, LANG] = None,
) -> None:
    """Handle the options before the command, which apply to every command: ``lang`` is put into the
    environment variable ``DUALML_LANG``."""
    if lang is not None:
        os.environ["DUALML_LANG"] = lang
