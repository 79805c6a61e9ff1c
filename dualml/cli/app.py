"""The commands of ``dualml``; each imports what it needs when it runs."""

from __future__ import annotations

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

app = typer.Typer(
    name="dualml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="One distributed-ML experiment, two frameworks (PyTorch, MindSpore), one honest report.",
    epilog="Exit codes: 0 well, 1 a trial failed, 2 wrong usage or input, 3 backends differ, "
    "130 interrupted.",
)


def version(asked: bool) -> None:
    if asked:
        typer.echo(f"dualml {dualml.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options before the command."""


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
