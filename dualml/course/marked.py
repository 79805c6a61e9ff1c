"""Skeletons, made of our own solutions by the regions marked in them, so that they cannot drift.

``# solution: begin`` and ``# solution: end`` enclose what a student writes. Without it the function
raises `NotImplementedError`; ``# solution: begin pass`` leaves a function that does nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

BEGIN = re.compile(r"( *)# solution: begin( pass)?")
END = re.compile(r" *# solution: end")
#: What encloses the student's part in a skeleton.
YOURS = ("# your code: begin", "# your code: end")
UNWRITTEN = "raise NotImplementedError"


def regions(source: str) -> Iterator[tuple[int, int]]:
    """Numbers (from 0) of the lines that open and close each region.

    Raises:
        ValueError: a mark without its other half.
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


def skeleton(source: str, texts: Mapping[str, str] | None = None) -> str:
    """The file without its solutions.

    Args:
        texts: line → translated line (both without indentation) of docstrings and comments.
    """
    lines, out, at = source.splitlines(), list[str](), 0
    for first, last in regions(source):
        out += lines[at:first]
        mark = BEGIN.fullmatch(lines[first])
        assert mark is not None
        indent, body = mark[1], "pass" if mark[2] else UNWRITTEN
        out += [indent + line for line in (YOURS[0], body, YOURS[1])]
        at = last + 1
    out += lines[at:]
    return "\n".join(translated(line, texts or {}) for line in out) + "\n"


def translated(line: str, texts: Mapping[str, str]) -> str:
    text = line.strip()
    return line.replace(text, texts[text]) if text in texts else line


def bodies(source: str) -> list[str]:
    """The solution of each region, with its indentation."""
    lines = source.splitlines()
    return ["\n".join(lines[first + 1 : last]) for first, last in regions(source)]


def joined(text: str, parts: Sequence[str]) -> str:
    """A skeleton with these bodies in its regions."""
    pieces = re.split(rf"(?m)^( *){YOURS[0]}\n(.*)\n *{YOURS[1]}$", text)
    out = pieces[0]
    for part, indent, kind, rest in zip(
        parts, pieces[1::3], pieces[2::3], pieces[3::3], strict=True
    ):
        begin = "# solution: begin" + (" pass" if kind.strip() == "pass" else "")
        body = f"{part}\n" if part else ""
        out += f"{indent}{begin}\n{body}{indent}# solution: end{rest}"
    return out
