"""What the commands print: JSON for scripts, tables for people."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from dualml.errors import UserError, plain
from dualml.files import finite
from dualml.report.page import terminal
from dualml.schemas import named
from dualml.words import Words

LONGEST = 2000  # characters of a message
#: What JSON allows in a text and a terminal takes as a command: controls beyond ASCII, and marks
#: that change the direction of writing.
STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def complain(text: str) -> None:
    """One line on standard error, whatever its parts hold; nothing where the terminal is gone."""
    line = " ".join(map(plain, text.split()))
    if len(line) > LONGEST:
        line = f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    with contextlib.suppress(OSError):
        print(f"dualml: {line}", file=sys.stderr, flush=True)


def print_text(text: object = "", *, err: bool = False) -> None:
    """Print a text and a line break; what would steer the terminal is shown as escapes, because
    names, logs and errors come from run folders of others."""
    typer.echo(plain(str(text), "\n\t"), err=err)


def check_streams(json: bool, **outputs: Path | None) -> bool:
    """Whether one of these options is ``-``, standard output, which then has nothing else.

    Args:
        outputs: option → its value.

    Raises:
        UserError: several things would go there.
    """
    there = [f"--{name}" for name, path in outputs.items() if str(path) == "-"]
    every = ["--json"] * json + there
    if there and len(every) > 1:
        raise UserError(f"{' and '.join(every)} both go to standard output: name a file for one")
    return bool(there)


def write_page(path: Path, text: str, *, folders: bool = False) -> None:
    """Write a text where an option says, see `dualml.outputs`.

    Args:
        folders: whether those above are made where they are missing.

    Raises:
        UserError: it cannot be written.
    """
    from dualml.outputs import write_output

    try:
        if folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_output(path, text.encode(errors="backslashreplace"))
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


def print_json(value: Any, schema: str = "") -> None:
    """Print a value; an object with the name and version of its ``schema``: see `dualml schema`."""
    if schema and isinstance(value, dict):
        value = {"schema": named(schema), **value}
    escaped = "utf" not in (sys.stdout.encoding or "").lower()  # then every letter as ASCII
    encoder = json.JSONEncoder(indent=1, ensure_ascii=escaped, allow_nan=False)
    for piece in encoder.iterencode(finite(value)):
        sys.stdout.write(STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", piece))
    sys.stdout.write("\n")


def print_run(folder: Any, parity: Mapping[str, Any], lang: str, *, report: bool) -> None:
    from dualml.store.report import report_path

    if notice := folder.run.data.notice:
        text = plain(notice.get(lang) or notice["en"], "\n")
        typer.echo(f"{typer.style('!', fg='yellow')} {text}")
    print_verdicts(parity, lang)
    print_findings(folder.path, lang)
    print_text(f"→ {report_path(folder.path) if report else folder.path}")


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
        print_text(words("headline.empty"))
    for line in on_one_backend(parity, words):
        print_text(line)


def print_findings(folder: Path, lang: str) -> None:
    """The paragraphs of what was found in a run."""
    from dualml.store.findings import read_findings

    for finding in read_findings(folder):
        print_text(f"• {getattr(finding.text, lang)}")
