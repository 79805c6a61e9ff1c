"""Find names of version 0.1 in Python code that is read, not run.

A name counts where the code itself shows what it belongs to: by an import, a call of the class, an
annotation, or a class derived from it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from dualml.common.former_members import FORMER_MEMBERS, former_keywords
from dualml.common.former_paths import BACKEND, CORE

PATH_CHANGES: Mapping[str, Mapping[str, str]] = {
    "dualml": CORE,
    "dualml_torch": BACKEND,
    "dualml_ms": BACKEND,
}
#: Beginning of our own warnings of former names.
OUR_WARNING = re.compile(r"(dualml[\w.]*|[A-Z]\w*)\.\w+ is now ")


class FormerNameScan:
    """Reads sources one after the other; names of one hold in the next, as in cells of a
    notebook. Attributes of instances are not followed."""

    def __init__(self) -> None:
        self.visitor = _Visitor()

    def read(self, source: str | bytes) -> list[tuple[int, str]]:
        """Return line and message of each former name in a source, in the order of the lines.

        Raises:
            SyntaxError, ValueError: it is no Python code, or nested too deeply.
        """
        self.visitor.found = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the user's code
                tree = ast.parse(source)
            self.visitor.visit(tree)
        except (RecursionError, MemoryError):
            raise ValueError("nested too deeply") from None
        return sorted(set(self.visitor.found))


class _Visitor(ast.NodeVisitor):
    """Walks through sources and follows what their names stand for.

    Attributes:
        found: line and message of each former name.
        paths: name in the source → dotted path in one of our packages.
        classes: name of a variable, or ``self`` → class of its value.
    """

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self.paths: dict[str, str] = {}
        self.classes: dict[str, type] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if is_ours(alias.name):
                self._note_path(node.lineno, alias.name)
                top = alias.name.partition(".")[0]
                self.paths[alias.asname or top] = present_path(alias.name) if alias.asname else top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not node.module or not is_ours(node.module):
            return
        self._note_path(node.lineno, node.module)
        for alias in node.names:
            path = f"{node.module}.{alias.name}"
            self._note_path(node.lineno, path)
            self._note_name(node.lineno, path)
            self.paths[alias.asname or alias.name] = present_path(path)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self._path_of(node)
        if path is not None:
            self._note_path(node.lineno, path)
            self._note_name(node.lineno, path)
        else:
            owner = self._class_of(node.value)
            if owner is not None:
                self._note_member(node.lineno, owner, node.attr)
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        called = resolve_name(self._path_of(node.func))[0]
        function = vars(called).get("__init__") if isinstance(called, type) else called
        renamed = former_keywords(function)
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg in renamed:
                name, present = getattr(called, "__name__", "it"), renamed[keyword.arg]
                message = f"the parameter {keyword.arg} of {name} is now {present}"
                self.found.append((keyword.value.lineno, message))
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        made = self._class_of(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._bind(target.id, made)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._bind(node.target.id, self._named_class(node.annotation))
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = dict(self.paths), dict(self.classes)
        self.generic_visit(node)
        self.paths, self.classes = before

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_arg(self, node: ast.arg) -> None:
        if node.arg != "self":
            self._bind(node.arg, self._named_class(node.annotation))
        self.generic_visit(node)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._unbind(node.target)
        self.generic_visit(node)

    visit_AsyncFor = visit_For

    def visit_withitem(self, node: ast.withitem) -> None:
        self._unbind(node.optional_vars)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        bases = [base for base in map(self._named_class, node.bases) if base is not None]
        before = self.classes.get("self")
        for base in bases:
            self._bind("self", base)
            for line, name in defined_names(node):
                if present := former_members(base).get(name):
                    message = f"{node.name} overrides {name}, which is now {present}"
                    self.found.append((line, message))
        self.generic_visit(node)
        self._bind("self", before)

    def _bind(self, name: str, value: type | None) -> None:
        self.classes.pop(name, None)
        self.paths.pop(name, None)
        if value is not None:
            self.classes[name] = value

    def _unbind(self, target: ast.expr | None) -> None:
        for node in ast.walk(target) if target is not None else ():
            if isinstance(node, ast.Name):
                self._bind(node.id, None)

    def _path_of(self, node: ast.AST | None) -> str | None:
        """Return the dotted path of a name, or of attributes of one, in one of our packages; None
        for anything else."""
        if isinstance(node, ast.Name):
            return self.paths.get(node.id)
        if isinstance(node, ast.Attribute):
            start = self._path_of(node.value)
            return None if start is None else f"{start}.{node.attr}"
        return None

    def _named_class(self, node: ast.AST | None) -> type | None:
        """Return the class of ours that an expression names, also in quotes and as one that may be
        None; None if it names none."""
        if isinstance(node, ast.BinOp):
            return self._named_class(node.left) or self._named_class(node.right)
        if isinstance(node, ast.Subscript):
            name = getattr(node.value, "attr", getattr(node.value, "id", ""))
            return self._named_class(node.slice) if name == "Optional" else None
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            with contextlib.suppress(SyntaxError, ValueError):
                return self._named_class(ast.parse(node.value, mode="eval").body)
        named = resolve_name(self._path_of(node))[0]
        return named if isinstance(named, type) else None

    def _class_of(self, node: ast.AST) -> type | None:
        """Return the class of ours of an expression's value, where the source shows it: a call of
        the class, or a variable bound to one; else None."""
        if isinstance(node, ast.Call):
            return self._named_class(node.func)
        return self.classes.get(node.id) if isinstance(node, ast.Name) else None

    def _note_path(self, line: int, path: str) -> None:
        if (present := present_path(path)) != path:
            below = len(path.split(".")) - 2  # parts that both paths end with
            former, new = (".".join(p.split(".")[: -below or None]) for p in (path, present))
            self.found.append((line, f"{former} is now {new}"))

    def _note_name(self, line: int, path: str) -> None:
        self.found += [(line, message) for message in resolve_name(path)[1]]

    def _note_member(self, line: int, owner: type, name: str) -> None:
        if present := former_members(owner).get(name):
            message = f"{owner.__name__}.{name} is now {owner.__name__}.{present}"
            self.found.append((line, message))


def is_ours(path: str) -> bool:
    """Return whether a dotted path begins with ``dualml``, ``dualml_torch`` or ``dualml_ms``."""
    return path.partition(".")[0] in PATH_CHANGES


def present_path(path: str) -> str:
    """Return a dotted path in one of our packages with the present path of its module, where that
    has moved since version 0.1; else unchanged."""
    package, _, rest = path.partition(".")
    first, dot, below = rest.partition(".")
    moved = PATH_CHANGES[package].get(first, first)
    return f"{package}.{moved}{dot}{below}" if first else path


def defined_names(node: ast.ClassDef) -> Iterator[tuple[int, str]]:
    """Yield line and name of each method and attribute that a class itself defines."""
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield inner.lineno, inner.name
        targets = (
            inner.targets if isinstance(inner, ast.Assign) else [getattr(inner, "target", None)]
        )
        yield from ((inner.lineno, t.id) for t in targets if isinstance(t, ast.Name))


@functools.cache
def former_members(owner: type) -> Mapping[str, str]:
    """Return former name → present name of the renamed members of a class of ours, inherited ones
    included; empty for other classes."""
    found: dict[str, str] = {}
    for base in reversed(inspect.getmro(owner)):
        found |= FORMER_MEMBERS.get(f"{base.__module__}.{base.__qualname__}", {})
    return found


@functools.cache
def resolve_name(path: str | None) -> tuple[Any, tuple[str, ...]]:
    """Return the object that a dotted path in one of our packages stands for, and a message for
    each former name in it. The object is None for no path, and where it does not exist or cannot be
    imported, as without the framework of a backend."""
    if path is None:
        return None, ()
    parts = path.split(".")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        value = _follow(parts)
    texts = (str(w.message) for w in warned if issubclass(w.category, DeprecationWarning))
    return value, tuple(text for text in texts if OUR_WARNING.match(text))


def _follow(parts: list[str]) -> Any:
    """Import the longest module of a path and return the attribute that the rest names; None if
    there is none, or if its framework cannot be imported."""
    for length in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:length]))
            for name in parts[length:]:
                value = getattr(value, name, None)
            return value
        except ModuleNotFoundError:
            continue
        except Exception:  # of a broken framework, which `dualml doctor` without files examines
            return None
    return None
