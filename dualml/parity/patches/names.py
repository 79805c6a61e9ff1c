"""Names of functions and settings in a user's source, in one spelling for all frameworks."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualml.parity.causes.tables import OPERATOR_FUNCTIONS

#: Python's operators → the functions of both frameworks that they call.
OPERATORS: Mapping[str, str] = {
    "Add": "add",
    "Sub": "sub",
    "Mult": "mul",
    "Div": "div",
    "Pow": "pow",
    "MatMult": "matmul",
    "FloorDiv": "floordivide",
    "Lt": "lt",
    "LtE": "le",
    "Gt": "gt",
    "GtE": "ge",
    "Eq": "eq",
    "NotEq": "ne",
}


@functools.cache
def load_dialect() -> dict[str, Any]:
    """Return the tables of ``dialect.toml``: names in PyTorch → names in other frameworks, of
    functions, methods, settings and defaults."""
    return tomllib.loads((Path(__file__).parent / "dialect.toml").read_text("utf-8"))


@functools.cache
def same_functions() -> dict[str, str]:
    """Return name of a function in another framework → its name in PyTorch, both as
    `normalize_name` writes them."""
    table: dict[str, str] = {}
    for name, others in load_dialect()["functions"].items():
        for other in others:
            table.setdefault(normalize_name(other), normalize_name(name))
    return table


def normalize_name(name: str) -> str:
    """Return a name in lower case without underscores and without the ending ``ext``."""
    return name.lower().replace("_", "").removesuffix("ext")


def function_key(name: str) -> str:
    """Return the last part of a function's dotted name in the terms of PyTorch, see
    `normalize_name`: ``cat`` for ``ops.concat``; operators have the name of their function."""
    last = name.rpartition(".")[2]
    word = normalize_name(OPERATOR_FUNCTIONS.get(last, last))
    return same_functions().get(word, word)


def setting_names(name: str) -> tuple[str, ...]:
    """Return the names that a port may use for a setting (keyword argument) of PyTorch, PyTorch's
    name first."""
    return tuple(dict.fromkeys((name, *load_dialect()["settings"].get(name, ()))))


def setting_key(name: str) -> str:
    """Return a setting's (keyword argument's) name in the terms of PyTorch: ``dim`` for ``axis``;
    the given name if nothing is known."""
    for ours, others in load_dialect()["settings"].items():
        if name == ours or name in others:
            return str(ours)
    return name


def dotted_name(node: ast.AST) -> str:
    """Return the text of a name with attributes, such as ``nn.LayerNorm``; empty for any other
    node."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def imported_names(tree: ast.Module) -> frozenset[str]:
    """Return the names that the imports of a file define; for ``import a.b`` that is ``a``."""
    return frozenset(
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )


@dataclass(frozen=True)
class CallForm:
    """A call, in one form for functions and methods.

    Attributes:
        key: the function in the terms of PyTorch; ``self.NAME`` for a module's own parts.
        arguments: the positional arguments; for a method the tensor first.
        keywords: the keyword arguments by `setting_key`.
    """

    key: str
    arguments: tuple[ast.expr, ...]
    keywords: Mapping[str, ast.keyword] = field(default_factory=dict)


def call_form(node: ast.Call, imported: frozenset[str]) -> CallForm:
    """Return the form of a call in a file that imports these names."""
    name, receiver = dotted_name(node.func), list[ast.expr]()
    root = name.partition(".")[0]
    key = function_key(name)
    if root in ("self", "s") and "." in name:
        key = f"self.{name.partition('.')[2]}"
    elif isinstance(node.func, ast.Attribute) and root not in imported:
        receiver, key = [node.func.value], function_key(node.func.attr)
    keywords = {setting_key(one.arg): one for one in node.keywords if one.arg}
    return CallForm(key, (*receiver, *node.args), keywords)


@functools.lru_cache(maxsize=1 << 15)
def canonical_text(node: ast.AST | None, imported: frozenset[str]) -> str:
    """Return a text of a node that is equal for two frameworks' spellings of the same code; empty
    for None.

    Args:
        imported: names that the node's file imports.
    """
    if node is None:
        return ""
    if isinstance(node, ast.Call):
        form = call_form(node, imported)
        words = [canonical_text(one, imported) for one in form.arguments]
        words += sorted(
            f"{k}={canonical_text(v.value, imported)}" for k, v in form.keywords.items()
        )
        return f"{form.key}({', '.join(words)})"
    if isinstance(node, ast.Attribute | ast.Name):
        name = dotted_name(node)
        if name and name.partition(".")[0] not in imported:
            return name
        return function_key(name) if name else canonical_fields(node, imported)
    if isinstance(node, ast.Constant):
        return repr(node.value)
    return canonical_fields(node, imported)


def canonical_fields(node: ast.AST, imported: frozenset[str]) -> str:
    """Return the canonical text of a node, made of its type and the canonical texts of its
    fields."""
    words: list[str] = []
    for name, value in ast.iter_fields(node):
        if name in ("ctx", "type_comment", "annotation", "returns", "lineno"):
            continue
        rows: Sequence[Any] = value if isinstance(value, list) else [value]
        words += [canonical_text(v, imported) if isinstance(v, ast.AST) else str(v) for v in rows]
    return f"{type(node).__name__}[{', '.join(words)}]"
