"""`dualml capabilities`: every collective and message of every backend, tried live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dualml.cli.options import AsJson, Lang
from dualml.words import phrases

if TYPE_CHECKING:
    from dualml.capabilities import Column

COLOURS = {"native": "green", "composed": "cyan", "unsupported": "yellow", "failed": "red"}


def capabilities(
    backend: Annotated[str | None, typer.Option(metavar="B")] = None,
    device: Annotated[list[str] | None, typer.Option(metavar="D")] = None,
    ranks: Annotated[int, typer.Option(metavar="N")] = 2,
    dtypes: Annotated[bool, typer.Option("--dtypes")] = False,
    as_json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """How each backend executes collectives and messages: native, composed or not at all."""
    from rich.console import Console

    from dualml.backend import backends, choose
    from dualml.cli.output import print_json
    from dualml.machine import parse_device

    for word in device or ():
        parse_device(word)
    words = phrases(lang, "capabilities")
    installed = [info for info in backends().values() if info.installed()]
    chosen = installed if backend in (None, "all") else choose(backend)
    from dualml.capabilities import examine

    with Console(stderr=True).status("") as status:
        columns = examine(
            chosen, device, ranks, lambda what: status.update(f"{words['trying']} {what}")
        )
    ok = all(column.ok for column in columns)
    if as_json:
        print_json({"ranks": ranks, "ok": ok, "columns": [c.describe() for c in columns]})
    else:
        show(columns, ranks, words, dtypes)
        print_verdict(ok, words)
    raise typer.Exit(0 if ok else 1)


def show(columns: Sequence[Column], ranks: int, words: dict[str, str], dtypes: bool) -> None:
    """One row for each primitive, one column for each backend and device."""
    from rich.console import Console
    from rich.table import Table

    from dualml.communicator import PRIMITIVES

    title = words["title"].format(n=ranks)
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column(words["primitive"], no_wrap=True)
    for column in columns:
        table.add_column(f"{column.backend} ({column.device})", overflow="fold")
    for primitive in PRIMITIVES:
        table.add_row(primitive, *(cell(c, primitive, words, dtypes) for c in columns))
    Console().print(table)


def cell(column: Column, primitive: str, words: dict[str, str], dtypes: bool) -> str:
    """The kind, what it is made of, and the types that differ; or all types in detail."""
    from rich.markup import escape

    def named(kind: str) -> str:
        return f"[{COLOURS[kind]}]{words[kind]}[/]"

    if column.reason is not None:
        kind = "failed" if column.asked else "unsupported"
        return f"{named(kind)}: {escape(column.reason)}"
    usual = column.summary(primitive)
    lines = [f"{named(usual.kind)}: {escape(usual.detail)}"]
    if not dtypes:
        for kind, names in column.differing(primitive).items():
            why = next(e.detail for e in column.flat(primitive) if e.kind == kind)
            lines.append(f"{named(kind)}: {', '.join(names)} ({escape(why)})")
        return "\n".join(lines)
    for dtype, ops in column.entries[primitive].items():
        kinds: dict[str, list[str]] = {}
        for op, entry in ops.items():
            kinds.setdefault(entry.kind, []).append(op)
        told = "; ".join(f"{named(k)} {' '.join(names)}".rstrip() for k, names in kinds.items())
        lines.append(f"  {dtype}: {told}")
    return "\n".join(lines)


def print_verdict(ok: bool, words: dict[str, str]) -> None:
    from rich.console import Console

    Console().print(f"[green]{words['right']}[/]" if ok else f"[red]{words['wrong']}[/]")
