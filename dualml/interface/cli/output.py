"""Print results: JSON for scripts, tables for people."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dualml.common.errors import UserError, escape_unprintable
from dualml.common.files import nonfinite_to_none
from dualml.common.words import Messages
from dualml.interface.schemas import schema_id

if TYPE_CHECKING:
    from dualml.experiment.store.trial_comparison import RunVerdicts

MAX_MESSAGE_CHARS = 2000  # maximum characters of a message
#: Characters that JSON allows and a terminal interprets: controls beyond ASCII, and marks
#: that change the direction of writing.
STEERING = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def complain(text: str) -> None:
    """Print a message to standard error as one line after ``dualml:``, with escapes and a long
    middle left out; ignore a terminal that is gone."""
    line = " ".join(map(escape_unprintable, text.split()))
    if len(line) > MAX_MESSAGE_CHARS:
        line = f"{line[: MAX_MESSAGE_CHARS // 2]} … {line[-MAX_MESSAGE_CHARS // 2 :]}"
    with contextlib.suppress(OSError):
        print(f"dualml: {line}", file=sys.stderr, flush=True)


def print_text(text: object = "", *, err: bool = False) -> None:
    """Print a text and a line break, with characters that control the terminal escaped.

    Names, logs and errors may come from other people's run folders.
    """
    typer.echo(escape_unprintable(str(text), "\n\t"), err=err)


def print_patch(text: str) -> None:
    """Print a patch with its own line ends, so that it can be applied to files that have them;
    other characters that control the terminal are escaped."""
    lines = text.split("\r\n")
    typer.echo("\r\n".join(escape_unprintable(line, "\n\t") for line in lines), nl=False)


def check_streams(json: bool, **outputs: Path | None) -> bool:
    """Return whether one of these options is ``-``: then standard output has no other output.

    Args:
        json: whether ``--json`` was given, which also uses standard output.
        outputs: option → its value.

    Raises:
        UserError: several outputs would go to standard output.
    """
    there = [f"--{name}" for name, path in outputs.items() if str(path) == "-"]
    every = ["--json"] * json + there
    if there and len(every) > 1:
        raise UserError(f"{' and '.join(every)} both go to standard output: name a file for one")
    return bool(there)


def write_page(path: Path, text: str, *, make_parents: bool = False) -> None:
    """Write a text to the path that an option names, ``-`` for standard output; see
    `dualml.common.outputs`.

    Args:
        make_parents: whether to create missing parent folders.

    Raises:
        UserError: the file cannot be written.
    """
    from dualml.common.outputs import write_output

    try:
        if make_parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_output(path, text.encode(errors="backslashreplace"))
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None


def print_json(value: Any, schema: str = "") -> None:
    """Print a value as JSON, with null for numbers that are not finite; an object gets the ID of
    its ``schema``, see `dualml schema`."""
    if schema and isinstance(value, dict):
        value = {"schema": schema_id(schema), **value}
    escaped = "utf" not in (sys.stdout.encoding or "").lower()  # then use ASCII only
    encoder = json.JSONEncoder(indent=1, ensure_ascii=escaped, allow_nan=False)
    for piece in encoder.iterencode(nonfinite_to_none(value)):
        sys.stdout.write(STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", piece))
    sys.stdout.write("\n")


def print_run(folder: Any, verdicts: RunVerdicts, lang: str, *, report: bool) -> None:
    """Print, for a finished run, a notice about its dataset, if there is one, the verdicts, the
    findings, and the path of the report, or of the run folder without ``report``.

    Args:
        folder: the run, a `RunFolder`.
        verdicts: of the run.
        lang: language of the texts.
        report: whether a report was written.
    """
    from dualml.experiment.store.report import report_path

    if notice := folder.run.data.notice:
        text = escape_unprintable(notice.get(lang) or notice["en"], "\n")
        typer.echo(f"{typer.style('!', fg='yellow')} {text}")
    print_verdicts(verdicts, lang)
    print_findings(folder.path, lang)
    print_text(f"→ {report_path(folder.path) if report else folder.path}")


def print_verdicts(verdicts: RunVerdicts, lang: str = "en") -> None:
    """Print one row per arm, seed and pair of backends, and summaries on one backend.

    The summaries compare arms with several ranks to one rank, and training methods to dualml's own
    training in the same precision.
    """
    from dualml.report.page import terminal
    from dualml.report.verdicts import serial_lines, verdict_table

    words = Messages(lang)
    table = verdict_table(verdicts, words)
    if table.rows:
        terminal.show(table)
    else:
        print_text(words("headline.empty"))
    for line in serial_lines(verdicts, words):
        print_text(line)


def print_findings(folder: Path, lang: str) -> None:
    """Print the findings of a run, one paragraph each; nothing if there are none."""
    from dualml.experiment.store.findings import read_findings

    for finding in read_findings(folder):
        print_text(f"• {getattr(finding.text, lang)}")
