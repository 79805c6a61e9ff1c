"""What the commands print: JSON for scripts, tables for people."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from dualml.errors import plain
from dualml.files import finite
from dualml.report.page import terminal
from dualml.schemas import named
from dualml.words import Words

LONGEST = 2000  # characters of a message


def complain(text: str) -> None:
    """One line on standard error, whatever its parts hold; nothing where the terminal is gone."""
    line = " ".join(map(plain, text.split()))
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    with contextlib.suppress(OSError):
        print(f"dualml: {line}", file=sys.stderr, flush=True)


def print_json(value: Any, schema: str = "") -> None:
    """Print a value; an object with the name and version of its ``schema``: see `dualml schema`."""
    if schema and isinstance(value, dict):
        value = {"schema": named(schema), **value}
    escaped = "utf" not in (sys.stdout.encoding or "").lower()  # then every letter as ASCII
    json.dump(finite(value), sys.stdout, indent=1, ensure_ascii=escaped, allow_nan=False)
    sys.stdout.write("\n")


def print_run(folder: Any, parity: Mapping[str, Any], lang: str, *, report: bool) -> None:
    from dualml.store.report import report_path

    if notice := folder.run.data.notice:
        typer.echo(f"{typer.style('!', fg='yellow')} {notice.get(lang, notice['en'])}")
    print_verdicts(parity, lang)
    print_findings(folder.path, lang)
    typer.echo(f"→ {report_path(folder.path) if report else folder.path}")


def print_verdicts(parity: Mapping[str, Any], lang: str = "en") -> None:
    """One row for each arm, seed and pair of backends; then how many arms with several ranks are
    what one rank computes, and which are not, nor methods what our own training in their precision
    computes."""
    from dualml.report.verdicts import on_one_backend, verdict_table

    words = Words(lang)
    table = verdict_table(parity, words)
    if table.rows:
        terminal.show(table)
    else:
        typer.echo(words("headline.empty"))
    for line in on_one_backend(parity, words):
        typer.echo(line)


def print_findings(folder: Path, lang: str) -> None:
    """The paragraphs of what was found in a run."""
    from dualml.store.findings import read_findings

    for finding in read_findings(folder):
        typer.echo(f"• {getattr(finding.text, lang)}")
