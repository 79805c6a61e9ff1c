"""Typical mistakes as data: the mutations of our solutions that produce them, and correct variants.

``LAB.toml`` has a table for each mistake, ``[[sign]]``: ``in``, file and class or function
(``optim_torch.py:GD``), and ``edits``, pairs of old and new text; ``[[variants]]`` has the same
keys and a ``name``. The messages about a mistake are in ``words/LANG/course_LAB.toml``.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

#: Table of correct variants.
VARIANTS = "variants"


@dataclass(frozen=True)
class Plant:
    """One mutation of one of our solutions.

    Attributes:
        name: name of the mistake or the variant.
        right: whether it is a correct variant.
        file, target: solution file and class or function, as ``optim_torch.py`` and ``GD``.
        edits: (old, new), each once in the target.
    """

    name: str
    right: bool
    file: str
    target: str
    edits: Sequence[tuple[str, str]]

    @property
    def title(self) -> str:
        """Name, file and target of the mutation."""
        return f"{self.name} {self.file}:{self.target}"


@cache
def load_plants(lab: str) -> tuple[Plant, ...]:
    """Return all known mutations of a lab's solutions: typical mistakes and correct variants."""
    text = (files(__name__) / f"{lab}.toml").read_text("utf-8")
    found = []
    for name, entries in tomllib.loads(text).items():
        for entry in entries:
            file, _, target = entry["in"].partition(":")
            edits = tuple((old, new) for old, new in entry["edits"])
            right = name == VARIANTS
            found.append(Plant(entry["name"] if right else name, right, file, target, edits))
    return tuple(found)


def apply_plant(source: str, plant: Plant) -> str:
    """Return the source of a file with a mutation applied inside its target.

    Raises:
        ValueError: the file has no such target, or an old text does not occur exactly once in it.
    """
    lines = source.splitlines(keepends=True)
    node = next(
        (n for n in ast.parse(source).body if getattr(n, "name", None) == plant.target), None
    )
    if node is None or node.end_lineno is None:
        raise ValueError(f"{plant.title}: there is no {plant.target}")
    before = "".join(lines[: node.lineno - 1])
    own = "".join(lines[node.lineno - 1 : node.end_lineno])
    after = "".join(lines[node.end_lineno :])
    for old, new in plant.edits:
        if own.count(old) != 1:
            raise ValueError(f"{plant.title}: {old!r} is there {own.count(old)} times")
        own = own.replace(old, new)
    return before + own + after
