"""Typical mistakes as data: the mutations of our solutions that produce them, and correct variants.

``LAB.toml`` has a table for each mistake, ``[[sign]]``: ``in``, file and class or function
(``optim_torch.py:GD``), and ``edits``, pairs of old and new text; ``[[variants]]`` has the same
keys and a ``name``. The messages about a mistake are in ``words/LANG/course_LAB.toml``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dualml.parity.hypothesis import Hypothesis, Patch

#: Table of correct variants.
VARIANTS = "variants"


@dataclass(frozen=True)
class Plant(Hypothesis):
    """One mutation of one of our solutions: a mistake, whose name is the option of the rule that
    makes it (`dualml.course.lab1.rules`), or a correct variant, which changes nothing."""

    section: str = "mistake"

    @property
    def name(self) -> str:
        """Name of the mistake or the variant."""
        return self.cause

    @property
    def right(self) -> bool:
        """Whether it is a correct variant."""
        return self.mutation is None

    @property
    def file(self) -> str:
        """Name of the solution file, as ``optim_torch.py``."""
        return self.patch.file

    @property
    def target(self) -> str:
        """Name of the changed class or function, as ``GD``."""
        return self.patch.target

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
            patch = Patch(file, target, tuple((old, new) for old, new in entry["edits"]))
            mistake = None if name == VARIANTS else name
            found.append(Plant(mistake or entry["name"], mutation=mistake, patch=patch))
    return tuple(found)
