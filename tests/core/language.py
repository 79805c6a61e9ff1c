"""The rules of `language.toml`, and every definition that they hold for."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from source_trees import parse_source

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dualml", "dualml_torch", "dualml_ms")
RULES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("language.toml").read_text("utf-8"))
EMPTY = frozenset(RULES["function_words"] + RULES["bare_verbs"])
FORMER = frozenset(RULES["former_terms"])
FRAGMENTS = frozenset(RULES["fragments"])
#: A docstring with fewer words is no sentence.
MIN_WORDS = 3


@dataclass(frozen=True)
class Definition:
    """A function, class or module-level constant.

    Attributes:
        place: ``PATH:QUALIFIED NAME``.
        kind: ``class``, ``function`` or ``constant``.
        docstring: without indentation; empty if there is none.
    """

    place: str
    kind: str
    docstring: str

    @property
    def name(self) -> str:
        return self.place.rpartition(":")[2].rpartition(".")[2]

    @property
    def package(self) -> str:
        return self.place.partition("/")[0]


#: First words of predicates.
PREDICATES = frozenset({"is", "has", "can", "should", "was"})


def split_words(name: str) -> list[str]:
    """Return the lower-case words of a name in any convention.

    >>> split_words("_heldBy_ONE2"), split_words("NCCLGroup")
    (['held', 'by', 'one', '2'], ['nccl', 'group'])
    """
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def says_nothing(name: str) -> bool:
    """Whether a name is made of function words and bare verbs alone, or of a former term.

    A predicate (``is_late``, ``has_ended``) says what it tests.
    """
    words = split_words(name)
    if name.startswith("__") or not words:
        return False
    if len(words) > 1 and words[0] in PREDICATES:
        words = words[1:] if FORMER.intersection(words) else ["predicate"]
    return all(word in EMPTY for word in words) or bool(FORMER.intersection(words))


def fault_of_docstring(text: str) -> str:
    """Return what is wrong with a docstring's first sentence; empty if nothing is."""
    first = re.split(r"[\s,:;]", text.strip(), maxsplit=1)[0]
    if first in FRAGMENTS:
        return f"begins with {first!r}"
    if text.strip().startswith("The same"):
        return "begins with 'The same'"
    if len(text.split()) < MIN_WORDS:
        return f"has {len(text.split())} words"
    return ""


def definitions_in(source: str, path: str) -> Iterator[Definition]:
    """Find every definition of a file, nested ones too."""
    tree = parse_source(source)
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    yield Definition(f"{path}:{name.id}", "constant", "")
    yield from _nested(tree, path, ())


def _nested(node: ast.AST, path: str, outer: tuple[str, ...]) -> Iterator[Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = (*outer, child.name)
            kind = "class" if isinstance(child, ast.ClassDef) else "function"
            yield Definition(f"{path}:{'.'.join(names)}", kind, ast.get_docstring(child) or "")
            yield from _nested(child, path, names)
        else:
            yield from _nested(child, path, outer)


@cache
def definitions() -> tuple[Definition, ...]:
    """Return every definition of the core and the backends."""
    return tuple(
        found
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for found in definitions_in(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
    )
