"""Lines of the two sources at which a cause is."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from dualml.parity.patches.names import canonical_text
from dualml.parity.patches.rewriting import is_simple
from dualml.parity.patches.source import SourceFile, UnreadableSource, read_source


def operation_lines(row: Mapping[str, Any] | None, file: Path, keys: Sequence[str]) -> list[int]:
    """Return the lines of ``file`` at which an operation was called or its layer was built; places
    in other files are left out.

    Args:
        row: the operation, as `dualml.parity.causes.explainer` describes it; None if unknown.
        keys: ``place`` (the call), ``built`` (the layer), or both, in the order wanted.
    """
    places = [(row or {}).get(key) for key in keys]
    return [int(one["line"]) for one in places if one and Path(one["file"]).resolve() == file]


def optimizer_lines(port: SourceFile, spec: Any) -> list[int]:
    """Return the lines of the simple statements in the function that makes an optimizer, and in all
    functions and classes of its file that it uses.

    Args:
        spec: import spec of that function; for another value nothing is returned.
    """
    defined = {
        node.name: node
        for node in port.tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    found: dict[str, ast.AST] = {}
    queue = [spec["name"]] if isinstance(spec, dict) and "name" in spec else []
    while queue:
        name = queue.pop(0)
        if name in defined and name not in found:
            found[name] = defined[name]
            queue += [n.id for n in ast.walk(defined[name]) if isinstance(n, ast.Name)]
    return [
        one.lineno
        for node in found.values()
        for one in port.statements
        if is_simple(one) and any(one is inner for inner in ast.walk(node))
    ]


def most_similar_lines(original: SourceFile, lines: Sequence[int], port: SourceFile) -> list[int]:
    """Return a list with the line of the port's simple statement that is most like the original's
    at the first of ``lines`` that has a statement; empty if there is none."""
    statement = next(filter(None, map(original.statement_at, lines)), None)
    if statement is None:
        return []
    wanted = canonical_text(statement, original.imported)

    def similarity(one: ast.stmt) -> float:
        text = canonical_text(one, port.imported)
        return SequenceMatcher(None, wanted, text, autojunk=False).ratio()

    rows = [(similarity(one), -one.lineno) for one in port.statements if is_simple(one)]
    return [-max(rows)[1]] if rows else []


def is_optimizer(cause: Mapping[str, Any]) -> bool:
    """Return whether a cause, given as a dict, is in the optimizer's update."""
    return bool(cause["alterations"][0]["kind"] == "optimizer")


def original_lines(cause: Mapping[str, Any], original: SourceFile) -> list[int]:
    """Return the lines of the original's file where a cause, given as a dict, is: of the call, of
    the layer that was built, of the optimizer."""
    line = str(cause["alterations"][0]["line"]).partition(":")[0]
    found = operation_lines(cause["place"], original.path, ("place", "built"))
    return [*found, *([int(line)] if line.isdigit() else [])]


def side_files(job: Mapping[str, Any], letter: str, optimizer: bool) -> list[str]:
    """Return the paths of the files of a side's model and, before it if ``optimizer``, of its
    optimizer; those without a file are left out.

    Args:
        letter: letter of the side.
    """
    own = job["sides"][letter]
    specs = [*([own["optimizer"]] if optimizer else []), own["model"]]
    return [one["file"] for one in specs if isinstance(one, dict) and one.get("file")]


def read_original(
    job: Mapping[str, Any], cause: Mapping[str, Any], letter: str = "a"
) -> SourceFile | None:
    """Return the original's file where a cause is, or else that of its model or optimizer; None if
    it cannot be read.

    Args:
        letter: letter of the side that is the original.
    """
    row = cause["place"] or {}
    place = row.get("place") or row.get("built")
    paths = [place["file"]] if place else []
    for path in [*paths, *side_files(job, letter, is_optimizer(cause))]:
        try:
            return read_source(Path(path).resolve())
        except UnreadableSource:
            continue
    return None
