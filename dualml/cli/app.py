"""The commands of ``dualml``; each imports what it needs when it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated

import typer

from dualml.cli.against import baseline
from dualml.cli.bench import bench
from dualml.cli.capabilities import capabilities
from dualml.cli.checkpoint import app as checkpoint
from dualml.cli.clean import clean
from dualml.cli.compare import compare
from dualml.cli.config import config
from dualml.cli.course import check, new
from dualml.cli.data import app as data
from dualml.cli.diffs import diffs
from dualml.cli.doctor import doctor
from dualml.cli.experiments import list_, show
from dualml.cli.export import export
from dualml.cli.generate import generate
from dualml.cli.grade import grade
from dualml.cli.help import HELP
from dualml.cli.jobs import jobs, logs, resume, status, stop
from dualml.cli.largest import largest
from dualml.cli.limits import Command
from dualml.cli.open import open_
from dualml.cli.options import LANG
from dualml.cli.partition import partition
from dualml.cli.plan import plan
from dualml.cli.results import find, parity, report
from dualml.cli.run import run
from dualml.cli.runs import runs
from dualml.cli.schema import schema
from dualml.cli.separator import SubmitCommand
from dualml.cli.serve import serve
from dualml.cli.simulate import simulate
from dualml.cli.split import split
from dualml.cli.submit import submit
from dualml.cli.tensorboard import tensorboard
from dualml.cli.top import top
from dualml.version import __version__

app = typer.Typer(
    name="dualml", no_args_is_help=True, suggest_commands=False, pretty_exceptions_enable=False,
    context_settings={"help_option_names": [*HELP]},
)  # fmt: skip


def print_version(asked: bool) -> None:
    """Print the version and exit."""
    if asked:
        typer.echo(f"dualml {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=print_version, is_eager=True)] = False,
    lang: Annotated[str | None, LANG] = None,
) -> None:
    """Handle the options before the command, which apply to every command."""
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
