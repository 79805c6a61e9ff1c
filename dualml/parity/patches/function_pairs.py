"""Functions of the two sources that do the same, and their statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dualml.parity.patches.rewriting import PatchSite
from dualml.parity.patches.source import SourceFile

#: Names of the same function in the two frameworks.
SAME_METHODS = {"construct": "forward"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def function_pairs(site: PatchSite) -> Iterator[tuple[Function, Function, bool]]:
    """Yield (function of the original, function of the port, whether the cause is in it) for
    functions that do the same: those around the places of the cause, then all of the same name in
    the same class. A pair may come twice; none without an original."""
    if site.original is None:
        return
    around = [
        [
            node
            for line in lines
            if (statement := source.statement_at(line)) is not None
            for node in (statement, *source.enclosing(statement))
            if isinstance(node, Function)
        ]
        for source, lines in (
            (site.original, site.original_lines),
            (site.port, site.lines),
        )
    ]
    for ours in around[0]:
        for theirs in around[1]:
            if same_name(ours.name) == same_name(theirs.name) or (
                ours is around[0][0] and theirs is around[1][0]
            ):
                yield ours, theirs, True
    known = {(scope, same_name(node.name)): node for scope, node in list_functions(site.original)}
    for scope, node in list_functions(site.port):
        partner = known.get((scope, same_name(node.name)))
        if partner is not None:
            yield partner, node, node in around[1]


def same_name(name: str) -> str:
    """Return the name of a method in PyTorch's terms: ``forward`` for ``construct``; other names as
    they are."""
    return SAME_METHODS.get(name, name)


def list_functions(source: SourceFile) -> Iterator[tuple[str, Function]]:
    """Yield (name of the class, function) for all functions of a file; the name is empty for a
    function that is not directly in a class."""
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            owner = next(source.enclosing(node), None)
            yield owner.name if isinstance(owner, ast.ClassDef) else "", node


def flat_statements(function: Function) -> list[ast.stmt]:
    """Return all statements of a function in order, those inside loops and branches after their
    heads, without docstrings and nested functions and classes."""
    rows: list[ast.stmt] = []

    def collect(body: Sequence[ast.stmt]) -> None:
        for one in body:
            if isinstance(one, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                continue
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                continue
            rows.append(one)
            for name in ("body", "orelse", "finalbody"):
                collect(getattr(one, name, []))

    collect(function.body)
    return rows
