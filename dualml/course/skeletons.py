"""Skeletons for students, generated from our solutions by marked regions, so that they cannot
drift.

``# solution: begin`` and ``# solution: end`` enclose the code that a student writes. A skeleton
raises `NotImplementedError` instead; after ``# solution: begin pass`` it does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

BEGIN = re.compile(r"( *)# solution: begin( pass)?")
END = re.compile(r" *# solution: end")
#: Lines that enclose the student's part of a skeleton.
STUDENT_MARKERS = ("# your code: begin", "# your code: end")
UNWRITTEN = "raise NotImplementedError"


def find_regions(source: str) -> Iterator[tuple[int, int]]:
    """Yield the line numbers (from 0) that open and close each region.

    Raises:
        ValueError: a mark has no counterpart.
    """
    opened = None
    for number, line in enumerate(source.splitlines()):
        if BEGIN.fullmatch(line):
            if opened is not None:
                raise ValueError(f"line {number + 1}: a region inside of another")
            opened = number
        elif END.fullmatch(line):
            if opened is None:
                raise ValueError(f"line {number + 1}: the end of no region")
            yield opened, number
            opened = None
    if opened is not None:
        raise ValueError(f"line {opened + 1}: a region without an end")


def make_skeleton(source: str, texts: Mapping[str, str] | None = None) -> str:
    """Make the skeleton of a file, without its solutions.

    Args:
        texts: line → translated line (both without indentation) of docstrings and comments.
    """
    lines, out, at = source.splitlines(), list[str](), 0
    for first, last in find_regions(source):
        out += lines[at:first]
        mark = BEGIN.fullmatch(lines[first])
        assert mark is not None
        indent, body = mark[1], "pass" if mark[2] else UNWRITTEN
        out += [indent + line for line in (STUDENT_MARKERS[0], body, STUDENT_MARKERS[1])]
        at = last + 1
    out += lines[at:]
    return "\n".join(translate_line(line, texts or {}) for line in out) + "\n"


def translate_line(line: str, texts: Mapping[str, str]) -> str:
    """Return a line with its text replaced by its translation in ``texts``, indentation kept;
    unchanged without one."""
    text = line.strip()
    return line.replace(text, texts[text]) if text in texts else line
