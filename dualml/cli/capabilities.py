"""`dualml capabilities`: every collective and message of every backend, tried live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dualml.capabilities import Column

COLOURS = {"native": "green", "composed": "cyan", "unsupported": "yellow", "failed": "red"}
WORDS = {
    "en": {
        "primitive": "primitive",
        "trying": "trying",
        "title": "collectives and messages on {n} ranks, each run and compared with NumPy",
        "right": "all that ran is right",
        "wrong": "something failed or gave a wrong result",
        "native": "native",
        "composed": "composed",
        "unsupported": "unsupported",
        "failed": "failed",
    },
    "zh": {
        "primitive": "原语",
        "trying": "正在尝试",
        "title": "{n} 个 rank 上的集合通信与点对点通信，逐项运行并与 NumPy 对照",
        "right": "所有运行结果均正确",
        "wrong": "有原语失败或结果错误",
        "native": "原生",
        "composed": "组合实现",
        "unsupported": "不支持",
        "failed": "失败",
    },
}


def capabilities(
    backend: Annotated[
        str | None,
        typer.Option(metavar="B", help="torch, mindspore, numpy, a comma list, both or all."),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(metavar="D", help="cpu, cuda, …; repeatable. Default: what this machine has."),
    ] = None,
    ranks: Annotated[int, typer.Option(metavar="N", help="How many ranks.")] = 2,
    dtypes: Annotated[bool, typer.Option("--dtypes", help="Every type and operation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    lang: Annotated[str, typer.Option(metavar="en|zh", help="Language of the table.")] = "en",
) -> None:
    """How each backend executes collectives and messages: native, composed or not at all."""
    from rich.console import Console

    from dualml.backend import backends, choose
    from dualml.cli.output import check_lang, print_json
    from dualml.machine import parse_device

    check_lang(lang)
    for word in device or ():
        parse_device(word)
    words = WORDS[lang]
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
