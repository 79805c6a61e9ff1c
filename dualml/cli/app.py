"""The commands of ``dualml``; each imports what it needs when it runs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

import dualml
from dualml.cli import (
    capabilities,
    compare,
    data,
    diffs,
    doctor,
    experiments,
    partition,
    results,
    run,
    simulate,
    split,
)
from dualml.cli.options import LANG

app = typer.Typer(
    name="dualml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def version(asked: bool) -> None:
    if asked:
        typer.echo(f"dualml {dualml.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True)] = False,
    lang: Annotated[str | None, LANG] = None,
) -> None:
    """Options before the command hold for every command."""
    if lang is not None:
        os.environ["DUALML_LANG"] = lang


app.command()(run.run)
app.command()(results.report)
app.command()(results.parity)
app.command()(compare.compare)
app.command()(results.find)
app.command("list")(experiments.list_)
app.command()(experiments.show)
app.command()(simulate.simulate)
app.command()(partition.partition)
app.command()(split.split)
app.command()(doctor.doctor)
app.command()(capabilities.capabilities)
app.command()(diffs.diffs)
app.add_typer(data.app, name="data")
