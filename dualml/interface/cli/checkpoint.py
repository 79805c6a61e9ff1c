"""`dualml checkpoint`: show a checkpoint, and convert it to another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualml.interface.cli.command_group import CommandGroup
from dualml.interface.cli.limits import Command
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import print_json, print_text

app = typer.Typer(name="checkpoint", cls=CommandGroup, no_args_is_help=True, add_completion=False)


@app.command(cls=Command)
def show(
    path: Annotated[Path, typer.Argument(metavar="PATH")],
    like: Annotated[Path | None, typer.Option(metavar="PATH")] = None,
    verify: Annotated[bool, typer.Option("--verify")] = False,
    json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Show the tensors, the step and the layout of a checkpoint, without reading tensor data unless
    ``verify``. Raise `UserError` unless it is of the model of ``like``."""
    from dualml.common.words import Messages
    from dualml.report.page import terminal
    from dualml.runner.checkpoint import open_checkpoint
    from dualml.runner.checkpoint.display import describe_checkpoint, tensor_table, title_lines
    from dualml.runner.checkpoint.weights import check_same_model

    checkpoint = open_checkpoint(path)
    if like is not None:
        check_same_model(checkpoint, open_checkpoint(like))
    if verify:
        checkpoint.verify()
    if json:
        print_json(describe_checkpoint(checkpoint), "checkpoint")
        return
    words = Messages(lang)
    print_text("\n".join(title_lines(checkpoint, words)))
    if verify:
        print_text(words("checkpoint.verified" if checkpoint.files else "checkpoint.unverified"))
    terminal.show(tensor_table(checkpoint, words))


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
    """Write a checkpoint in another format or another number of files, bit for bit; with
    ``weights`` without the optimizer state. The source stays."""
    from dualml.common.words import Messages
    from dualml.runner.checkpoint import open_checkpoint
    from dualml.runner.checkpoint.convert import convert as write
    from dualml.runner.checkpoint.display import describe_checkpoint, title_lines
    from dualml.runner.checkpoint.weights import select_weights

    checkpoint = open_checkpoint(source)
    if weights:
        checkpoint = select_weights(checkpoint)
    write(checkpoint, target, to, shards)
    written = open_checkpoint(target)
    if json:
        print_json(describe_checkpoint(written), "checkpoint")
        return
    print_text("\n".join(title_lines(written, Messages(lang))))
