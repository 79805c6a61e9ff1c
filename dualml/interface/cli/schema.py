"""``dualml schema``: show the JSON schemas of the output of commands."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from dualml.interface.cli import complete
from dualml.interface.cli.options import AsJson, Lang
from dualml.interface.cli.output import print_json, print_text
from dualml.interface.schemas import schema_names, schema_text


def schema(
    name: Annotated[str | None, typer.Argument(autocompletion=complete.schemas)] = None,
    as_json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Print the JSON schema of what a command prints with --json; without a name, list all
    schemas."""
    if name is not None:
        print_text(schema_text(name).rstrip())
        return
    known = {one: json.loads(schema_text(one)) for one in schema_names()}
    if as_json:
        print_json({"schemas": {one: table["$id"] for one, table in known.items()}}, "schema")
        return
    for one, table in known.items():
        print_text(f"{one:<20} {table['title']}")
