"""`dualml capabilities`: try every collective and point-to-point operation of every backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from dualml.common.errors import UserError
from dualml.common.machine import parse_device
from dualml.common.words import section_messages
from dualml.interface.cli.options import BACKEND, DEVICE, AsJson, Lang
from dualml.interface.cli.output import print_json
from dualml.report.blocks import Cell, Tone
from dualml.report.page import terminal

if TYPE_CHECKING:
    from dualml.runner.capabilities import CapabilityColumn

TONES: Mapping[str, Tone] = {
    "native": "good",
    "composed": "near",
    "unsupported": "muted",
    "failed": "bad",
}


def capabilities(
    backend: Annotated[str | None, BACKEND] = None,
    device: Annotated[list[str] | None, DEVICE] = None,
    ranks: Annotated[int, typer.Option(metavar="N")] = 2,
    dtypes: Annotated[bool, typer.Option("--dtypes")] = False,
    as_json: AsJson = False,
    lang: Lang = "en",
) -> None:
    """Show how each backend executes collectives and messages: native, composed, or not at all;
    exit with 1 if a result was wrong."""
    from rich.console import Console

    from dualml.backend import backends, select_backends
    from dualml.experiment.arm import MAX_RANKS
    from dualml.report import blocks

    if not 1 <= ranks <= MAX_RANKS:
        raise UserError(f"--ranks must be from 1 to {MAX_RANKS}; received {ranks}")
    for word in device or ():
        parse_device(word)
    words = section_messages(lang, "capabilities")
    installed = [info for info in backends().values() if info.installed()]
    chosen = installed if backend in (None, "all") else select_backends(backend)
    from dualml.algorithms.communicator import PRIMITIVES
    from dualml.runner.capabilities import probe_backends

    with Console(stderr=True).status("") as status:
        columns = probe_backends(
            chosen, device, ranks, lambda what: status.update(f"{words['trying']} {what}")
        )
    ok = all(column.ok for column in columns)
    if as_json:
        described = [column.describe() for column in columns]
        print_json({"ranks": ranks, "ok": ok, "columns": described}, "capabilities")
    else:
        named = [f"{column.backend} ({column.device})" for column in columns]
        heads = [blocks.Column(name, name) for name in (words["primitive"], *named)]
        rows: list[blocks.Cells] = [
            [p, *(cell(c, p, words, dtypes) for c in columns)] for p in PRIMITIVES
        ]
        terminal.show(blocks.Table("primitives", words["title"].format(n=ranks), heads, rows))
        typer.secho(words["right" if ok else "wrong"], fg="green" if ok else "red")
    raise typer.Exit(0 if ok else 1)


def cell(column: CapabilityColumn, primitive: str, words: Mapping[str, str], dtypes: bool) -> Cell:
    """Return the cell of one primitive: implementation, detail, and dtypes that differ; or why the
    device could not be tried.

    With ``dtypes``, all dtypes are listed.
    """
    if column.reason is not None:
        kind = "failed" if column.requested else "unsupported"
        return Cell(f"{words[kind]}: {column.reason}", TONES[kind])
    usual = column.summary(primitive)
    lines = []
    if dtypes:
        for dtype, ops in column.entries[primitive].items():
            kinds: dict[str, list[str]] = {}
            for op, entry in ops.items():
                kinds.setdefault(entry.kind, []).append(op)
            parts = [f"{words[kind]} {' '.join(names)}".rstrip() for kind, names in kinds.items()]
            lines.append(f"{dtype}: {'; '.join(parts)}")
    else:
        for kind, names in column.differing_types(primitive).items():
            why = next(e.detail for e in column.results_of(primitive) if e.kind == kind)
            lines.append(f"{words[kind]}: {', '.join(names)} ({why})")
    return Cell(f"{words[usual.kind]}: {usual.detail}", TONES[usual.kind], "\n".join(lines))
