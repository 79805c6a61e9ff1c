"""Take a solution apart into a skeleton and the student's parts, and put it together again."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dualml.course.skeletons import STUDENT_MARKERS, find_regions


def solution_bodies(source: str) -> list[str]:
    """Return the solution of each region, with its indentation."""
    lines = source.splitlines()
    return ["\n".join(lines[first + 1 : last]) for first, last in find_regions(source)]


def fill_skeleton(text: str, parts: Sequence[str]) -> str:
    """Return our solution from a skeleton: each student's region replaced by the next of ``parts``,
    enclosed by the marks of a solution, as `make_skeleton` read it. Raise `ValueError` unless there
    are as many parts as regions."""
    pieces = re.split(rf"(?m)^( *){STUDENT_MARKERS[0]}\n(.*)\n *{STUDENT_MARKERS[1]}$", text)
    out = pieces[0]
    for part, indent, kind, rest in zip(
        parts, pieces[1::3], pieces[2::3], pieces[3::3], strict=True
    ):
        begin = "# solution: begin" + (" pass" if kind.strip() == "pass" else "")
        body = f"{part}\n" if part else ""
        out += f"{indent}{begin}\n{body}{indent}# solution: end{rest}"
    return out
