"""`dualml data`: list the datasets, download them, and verify their files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dualml.common.errors import UserError
from dualml.interface.cli import complete
from dualml.interface.cli.command_group import CommandGroup
from dualml.interface.cli.limits import Command
from dualml.interface.cli.options import AsJson
from dualml.interface.cli.output import print_json, print_text
from dualml.report.blocks import Column, Table
from dualml.report.page import terminal

app = typer.Typer(name="data", cls=CommandGroup, no_args_is_help=True, add_completion=False)

Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=complete.datasets)]


@app.command("list", cls=Command)
def list_(as_json: AsJson = False) -> None:
    """List every dataset with its size, licence and location."""
    from dualml.experiment.data.overview import list_image_datasets, list_texts
    from dualml.experiment.data.registry import TEXTS

    rows = [{**row, "kind": "images"} for row in list_image_datasets()]
    rows += [{**row, "kind": "text"} for row in list_texts()]
    if as_json:
        print_json(rows)
        return
    cells = [
        [
            row["name"],
            f"{row['train']:,} + {row['test']:,}{' lines' if row['kind'] == 'text' else ''}",
            f"{row['bytes'] / 1e6:.0f} MB" if row["bytes"] else "none",
            row["licence"],
            row["found"],
        ]
        for row in rows
    ]
    show_rows(["name", "train + test", "files", "licence", "found"], cells)
    for row in rows:
        print_text(f"\n{row['name']}: {row['what']}\n  from: {row['provenance']}")
        if row["folder"]:
            print_text(f"  in: {row['folder']}")
        if row["problem"]:
            print_text(f"  {row['problem']}")
        if row["kind"] == "text" and row["found"] == "absent":
            print_text(f"  to have it: {TEXTS[row['name']].remedy}")


@app.command(cls=Command)
def get(
    name: Name,
    source: Annotated[Path | None, typer.Option("--from", metavar="DIR")] = None,
    as_json: AsJson = False,
) -> None:
    """Download a dataset into the cache, or import it from a folder; every file is verified.
    Nothing is done for one that is embedded or generated; for another text raise `UserError` with
    the remedy."""
    from dualml.experiment.data.fetch import download
    from dualml.experiment.data.locations import import_files
    from dualml.experiment.data.registry import TEXTS, find_dataset

    if name in TEXTS:
        if not TEXTS[name].generated:
            raise UserError(f"{name} cannot be downloaded; remedy: {TEXTS[name].remedy}")
        folder, text = None, f"{name} is made by dualml: nothing to get"
    elif (info := find_dataset(name)).embedded:
        folder, text = None, f"{name} is embedded: nothing to get"
    else:
        folder = str(download(info) if source is None else import_files(info, source))
        text = f"{name}: {folder}"
    print_json({"name": name, "folder": folder}, "data") if as_json else print_text(text)


@app.command(cls=Command)
def verify(
    name: Name,
    folder: Annotated[Path | None, typer.Option("--dir", metavar="DIR")] = None,
    as_json: AsJson = False,
) -> None:
    """Check every file of a dataset against the published checksums; exit with 2 if one differs or
    is missing."""
    from dualml.experiment.data.overview import check_dataset, check_text
    from dualml.experiment.data.registry import TEXTS, find_dataset

    rows = (
        check_text(TEXTS[name], folder)
        if name in TEXTS
        else check_dataset(find_dataset(name), folder)
    )
    if as_json:
        print_json(rows)
    else:
        show_rows(
            ["file", "path", "verdict"],
            [[row["file"], row["path"] or "", "BAD" if row["problem"] else "ok"] for row in rows],
        )
    problems = [row["problem"] for row in rows if row["problem"]]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(problems[0] + more)


@app.command(cls=Command)
def stats(name: Name, as_json: AsJson = False) -> None:
    """Print mean and standard deviation per channel of the training images' pixels, divided by 255,
    for normalisation, next to the published ones."""
    from dualml.experiment.data import load
    from dualml.experiment.data.registry import TEXTS, find_dataset
    from dualml.experiment.data.stats import statistics

    if name in TEXTS:
        raise UserError(f"{name} is a text: it has no pixels; use a dataset of images")
    info = find_dataset(name)
    measured = statistics(load(name, explicit=True).train_x)
    if as_json:
        print_json(
            {"name": name, **asdict(measured), "published": [info.mean, info.std]}, "data-stats"
        )
        return
    published = [[c] if isinstance(c, int | float) else list(c) for c in (info.mean, info.std)]
    columns = zip(measured.mean, measured.std, *published, measured.image_std, strict=True)
    names = ("grey",) if len(measured.mean) == 1 else ("red", "green", "blue")
    show_rows(
        ["channel", "mean", "std", "published mean", "published std", "std inside an image"],
        [[word, *(f"{x:.6f}" for x in row)] for word, row in zip(names, columns, strict=True)],
    )
    print_text(f"{measured.samples:,} images, {measured.pixels:,} pixels a channel, divided by 255")


def show_rows(header: list[str], rows: list[list[str]]) -> None:
    """Print rows of text as a table."""
    terminal.show(Table("datasets", "", [Column(title, title) for title in header], rows))
