"""The user's lines around an operation, as they are in the source file now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualml.common.errors import UserError
from dualml.common.files import MAX_TEXT_BYTES, read_bytes

Row = Mapping[str, Any]
#: Number of letters of a call's code by which its line is recognised.
RECOGNISED_CHARS = 12
#: Lines over which a call may go on before its code is found.
CALL_LINES = 6


@dataclass(frozen=True)
class SnippetLine:
    """A line of a source file.

    Attributes:
        number: from 1; 0 for the mark of lines that are left out.
        is_marked: whether the operation was called, or its layer built, on this line.
    """

    number: int
    text: str
    is_marked: bool = False


def read_snippet(operation: Row, context: int) -> list[SnippetLine]:
    """Return the source lines of an operation, given as a dict, in order: the line that called it
    with ``context`` lines before and after it, and the line that built its layer; both are marked.

    Only the recorded code is returned if the file cannot be read or was changed since, and for a
    layer built in another file; empty if no place was recorded.
    """
    place = operation.get("place")
    built = operation.get("built")
    if place is None:
        place, built = built, None
    if place is None:
        return []
    lines = read_lines(place)
    if not lines:
        rows = [SnippetLine(int(place["line"]), str(place["code"]), is_marked=True)]
        return rows if built is None else [recorded_line(built), *rows]
    number = int(place["line"])
    shown = {n: n == number for n in range(number - context, number + context + 1)}
    rows = []
    if built is not None and built["file"] == place["file"]:
        shown[int(built["line"])] = True
    elif built is not None:
        rows.append(recorded_line(built))
    last = 0
    for n in sorted(n for n in shown if 0 < n <= len(lines)):
        if not lines[n - 1].strip() and not shown[n]:
            continue
        if last and n > last + 2:
            rows.append(SnippetLine(0, "…"))
        rows.append(SnippetLine(n, lines[n - 1].expandtabs(4).rstrip(), shown[n]))
        last = n
    return rows


def recorded_line(place: Row) -> SnippetLine:
    """Return a place (``file``, ``line``, ``code``) as a marked line, with the code that was
    recorded."""
    return SnippetLine(int(place["line"]), str(place["code"]), is_marked=True)


def read_lines(place: Row) -> list[str]:
    """Return all lines of a place's Python file; empty if it cannot be read, or if the recorded
    code is no longer near its line."""
    path, number = Path(str(place["file"])), int(place["line"])
    if path.suffix != ".py" or not path.is_file():
        return []
    try:
        lines = read_bytes(path, MAX_TEXT_BYTES).decode("utf-8", "replace").splitlines()
    except (OSError, UserError):
        return []
    code = "".join(str(place["code"]).split("…")[0].split())[:RECOGNISED_CHARS]
    there = "".join("".join(lines[max(number - 2, 0) : number + CALL_LINES]).split())
    return lines if code in there else []
