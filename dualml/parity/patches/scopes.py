"""Names that a place in a source knows."""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Iterator

from dualml.parity.patches.names import dotted_name
from dualml.parity.patches.source import SourceFile


def visible_names(source: SourceFile, node: ast.AST) -> frozenset[str]:
    """Return the names that a statement at the place of a node may use: builtins, imports, and
    names of the enclosing functions and of the file."""
    return frozenset(dir(builtins)).union(
        source.imported, *(stored_names(source, one) for one in (*source.enclosing(node), None))
    )


@functools.lru_cache(maxsize=256)
def stored_names(source: SourceFile, scope: ast.AST | None) -> frozenset[str]:
    """Return the names that a function assigns, and its parameters; for None those of the file: its
    assigned names and all functions and classes in it. Empty for a class."""
    if scope is None:
        defined = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        names = {one.name for one in ast.walk(source.tree) if isinstance(one, defined)}
        nodes = top_level(source.tree)
    elif isinstance(scope, ast.ClassDef):
        return frozenset()
    else:
        names, nodes = set(), iter(ast.walk(scope))
    for one in nodes:
        if isinstance(one, ast.arg):
            names.add(one.arg)
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            names.add(one.id)
    return frozenset(names)


def top_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all nodes of a module's own statements, without those of functions and classes."""
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from ast.walk(statement)


@functools.lru_cache(maxsize=64)
def own_attributes(source: SourceFile) -> frozenset[str]:
    """Return the names of all attributes of ``self`` (or ``s``) that are used in a file."""
    return frozenset(
        node.attr
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and dotted_name(node.value) in ("self", "s")
    )


def unknown_names(text: str, names: frozenset[str], attributes: frozenset[str]) -> set[str]:
    """Return the names in a piece of source that are neither in ``names`` nor made in it, and
    ``self.NAME`` for attributes that it reads and that are not in ``attributes``; empty if it is no
    valid Python."""
    try:
        tree = ast.parse(text.strip())
    except SyntaxError:
        return set()
    made = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    made |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    unknown = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - made - names
    unknown |= {
        f"self.{n.attr}"
        for n in ast.walk(tree)
        if isinstance(n, ast.Attribute)
        and dotted_name(n.value) == "self"
        and n.attr not in attributes
        and isinstance(n.ctx, ast.Load)
    }
    return unknown
