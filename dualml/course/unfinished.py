"""Detection of ``raise NotImplementedError`` that is left in a function below written code."""

from __future__ import annotations

import ast
from functools import cache
from importlib.resources import files

from dualml.course.skeletons import UNWRITTEN, make_skeleton

#: Statements that are no work of a student.
IGNORED = ("pass", UNWRITTEN, f"{UNWRITTEN}()")


def is_below_code(source: str, line: int, solution: str) -> bool:
    """Return whether the function around a line of a student's program has statements that its
    skeleton does not have, so that it is written and a ``raise NotImplementedError`` left over.

    Args:
        source: the program; one that cannot be parsed has no such function.
        line: line number from 1.
        solution: our solution of the file, as ``package:file``.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno <= line <= (node.end_lineno or 0)
    ]
    if not around:
        return False
    inner = max(around, key=lambda node: node.lineno)
    return bool(find_statements(inner) - skeleton_statements(solution))


def find_statements(node: ast.AST) -> set[str]:
    """Return the simple statements inside of a node in Python's own spelling, and the heads of the
    others; docstrings and `IGNORED` ones left out."""
    found = set()
    for inner in ast.walk(node):
        if inner is node or not isinstance(inner, ast.stmt):
            continue
        is_text = isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)
        text = ast.unparse(inner).partition("\n")[0]
        if not is_text and text not in IGNORED:
            found.add(text)
    return found


@cache
def skeleton_statements(solution: str) -> frozenset[str]:
    """Return the statements of a file's skeleton; ``solution`` is ``package:file``."""
    package, _, name = solution.partition(":")
    text = make_skeleton((files(package) / name).read_text("utf-8"))
    return frozenset(find_statements(ast.parse(text)))
