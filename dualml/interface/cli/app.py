"""The commands of ``dualml``; each imports what it needs when it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from dualml.common.version import __version__
from dualml.interface.cli.bench import bench
from dualml.interface.cli.capabilities import capabilities
from dualml.interface.cli.checkpoint import app as checkpoint
from dualml.interface.cli.clean import clean
from dualml.interface.cli.compare import compare
from dualml.interface.cli.compare_runs import baseline
from dualml.interface.cli.config import config
from dualml.interface.cli.course import check, new
from dualml.interface.cli.data import app as data
from dualml.interface.cli.diffs import diffs
from dualml.interface.cli.doctor import doctor
from dualml.interface.cli.experiments import list_, show
from dualml.interface.cli.export import export
from dualml.interface.cli.generate import generate
from dualml.interface.cli.grade import grade
from dualml.interface.cli.help import HELP
from dualml.interface.cli.jobs import jobs, logs, resume, status, stop
from dualml.interface.cli.largest import largest
from dualml.interface.cli.limits import Command
from dualml.interface.cli.open import open_
from dualml.interface.cli.options import LANG
from dualml.interface.cli.partition import partition
from dualml.interface.cli.plan import plan
from dualml.interface.cli.results import find, parity, report
from dualml.interface.cli.run import run
from dualml.interface.cli.runs import runs
from dualml.interface.cli.schema import schema
from dualml.interface.cli.separator import SubmitCommand
from dualml.interface.cli.serve import serve
from dualml.interface.cli.simulate import simulate
from dualml.interface.cli.split import split
from dualml.interface.cli.submit import submit
from dualml.interface.cli.tensorboard import tensorboard
from dualml.interface.cli.top import top

app = typer.Typer(
    name="dualml",
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


COMMANDS: tuple[Callable[..., None], ...] = (
    *(run, report, parity, compare, baseline, find, list_, show, simulate, plan, largest),
    *(partition, split),
    *(generate, doctor, capabilities, diffs, bench, new, check, grade, jobs, status, logs),
    *(stop, resume, tensorboard, serve, top, export, runs, open_, clean, config, schema),
)
for command in COMMANDS:
    app.command(command.__name__.rstrip("_"), cls=Command)(command)
# Other options are passed on to `dualml run`; everything after -- is a command.
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}
app.command("submit", cls=SubmitCommand, context_settings=PASS_THROUGH)(submit)
app.add_typer(data, name="data")
app.add_typer(checkpoint, name="checkpoint")
