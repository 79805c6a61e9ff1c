"""`dualml checkpoint`: show a checkpoint, and convert it to another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualml.cli.limits import Command
from dualml.cli.options import AsJson, Lang
from dualml.cli.output import print_json, print_text

app = typer.Typer(name="checkpoint", no_args_is_help=True)


@app.command(cls=Command)
def show(
    path: Annotated[Path, typer.Argument(metavar="PATH")],
    like: Annotated[Path | None, typer.Option(metavar="PATH")] = None,
    verify: Annotated[bool, typer.Option("--verify")] = False,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Show the tensors, the step and the layout of a checkpoint, without reading tensor data."""
    from dualml.checkpoint import opened
    from dualml.checkpoint.shown import describe, table, title
    from dualml.checkpoint.weights import check_alike
    from dualml.report.page import terminal
    from dualml.words import Words

    checkpoint = opened(path)
    if like is not None:
        check_alike(checkpoint, opened(like))
    if verify:
        checkpoint.verify()
    if json:
        print_json(describe(checkpoint), "checkpoint")
        return
    words = Words(lang)
    print_text("\n".join(title(checkpoint, words)))
    if verify:
        print_text(words("checkpoint.verified" if checkpoint.files else "checkpoint.unverified"))
    terminal.show(table(checkpoint, words))


@app.command(cls=Command)
def convert(
    source: Annotated[Path, typer.Argument(metavar="SRC")],
    target: Annotated[Path, typer.Argument(metavar="DST")],
    to: Annotated[str, typer.Option(metavar="FORMAT")] = "",
    shards: Annotated[int | None, typer.Option(metavar="N")] = None,
    weights: Annotated[bool, typer.Option("--weights")] = False,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Convert a checkpoint to another format or another number of files, bit for bit."""
    from dualml.checkpoint import opened
    from dualml.checkpoint.convert import convert as write
    from dualml.checkpoint.shown import describe, title
    from dualml.checkpoint.weights import weights_of
    from dualml.words import Words

    checkpoint = opened(source)
    if weights:
        checkpoint = weights_of(checkpoint)
    write(checkpoint, target, to, shards)
    written = opened(target)
    if json:
        print_json(describe(written), "checkpoint")
        return
    print_text("\n".join(title(written, Words(lang))))
