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
    """Yield functions of both sides that do the same, and whether the cause is in them: those
    around the places of the cause, then those of the same name."""
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
    """Return the name of a method in PyTorch."""
    return SAME_METHODS.get(name, name)


def list_functions(source: SourceFile) -> Iterator[tuple[str, Function]]:
    """Yield the functions of a file, each with the name of its class, empty for none."""
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            owner = next(source.enclosing(node), None)
            yield owner.name if isinstance(owner, ast.ClassDef) else "", node


def flat_statements(function: Function) -> list[ast.stmt]:
    """Return the statements of a function in order, those of loops and branches behind their
    heads, without docstrings and nested functions."""
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
