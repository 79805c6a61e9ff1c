"""The public names listed in `docs/public.toml`, looked up in the source without importing
anything."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from source_trees import parse_source

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dualml", "dualml_torch", "dualml_ms")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Item:
    """A public name, or a public method of one.

    Attributes:
        doc: its docstring (a method without one has that of the method it overrides; a constant
            has the comment ``#:`` above it).
        around: the docstrings of its class, of the class's bases, and of its module.
    """

    label: str
    node: Definition
    doc: str
    around: str

    @property
    def text(self) -> str:
        return f"{self.doc}\n{self.around}"


def public_modules() -> list[dict]:
    return tomllib.loads((ROOT / "docs" / "public.toml").read_text("utf-8"))["module"]


@cache
def source(module: str) -> tuple[str, ast.Module]:
    path = ROOT / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = file.read_text("utf-8")
    return text, parse_source(text)


def find(module: str, name: str) -> tuple[str, Definition]:
    """Return the definition of a name, following re-exports.

    Raises:
        LookupError: it is not defined in our packages.
    """
    if module.partition(".")[0] not in PACKAGES:
        raise LookupError(f"{module}.{name}")
    for node in ast.walk(source(module)[1]):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name and node.module:
                    return find(node.module, alias.name)
    for node in source(module)[1].body:
        if isinstance(node, Function | ast.ClassDef) and node.name == name:
            return module, node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and any(
            isinstance(target, ast.Name) and target.id == name for target in targets
        ):
            return module, node
    raise LookupError(f"{module}.{name}")


def family(module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """Return a class and its bases within our packages."""
    yield module, node
    for base in node.bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        try:
            place, above = find(module, ast.unparse(name))
        except LookupError:  # a framework's
            continue
        if isinstance(above, ast.ClassDef):
            yield from family(place, above)


def comment(module: str, node: Definition) -> str:
    """Return the ``#:`` comment above a constant."""
    lines = source(module)[0].splitlines()[: node.lineno - 1]
    above = []
    while lines and lines[-1].startswith("#:"):
        above.append(lines.pop()[2:])
    return "\n".join(reversed(above))


def docstring(node: Definition) -> str:
    return "" if isinstance(node, ast.Assign | ast.AnnAssign) else ast.get_docstring(node) or ""


def items(module: str, name: str) -> Iterator[Item]:
    """Return a public name and, for a class, its public methods."""
    place, node = find(module, name)
    label, about = f"{module}.{name}", ast.get_docstring(source(place)[1]) or ""
    if not isinstance(node, ast.ClassDef):
        yield Item(label, node, docstring(node) or comment(place, node), about)
        return
    kin = list(family(place, node))
    around = "\n".join([*(docstring(above) for _, above in kin), about])
    yield Item(label, node, docstring(node), around)
    for method in methods(node):
        same = (m for _, above in kin for m in methods(above) if m.name == method.name)
        # An overriding method says what it does; the method that it overrides says the rest.
        docs = "\n\n".join(doc for m in same if (doc := docstring(m)))
        yield Item(f"{label}.{method.name}", method, docs, around)


def methods(node: ast.ClassDef) -> list[Function]:
    public = (part for part in node.body if isinstance(part, Function))
    return [part for part in public if not part.name.startswith("_") or part.name == "__call__"]


def parameters(item: Item) -> dict[str, str]:
    """Return name → annotation of a function's parameters, or of a class's constructor."""
    node = item.node
    if isinstance(node, ast.ClassDef):
        makers = (p for p in node.body if isinstance(p, Function) and p.name == "__init__")
        maker = next(makers, None)
        if maker is None:
            return {
                part.target.id: ast.unparse(part.annotation)
                for part in node.body
                if isinstance(part, ast.AnnAssign)
                and isinstance(part.target, ast.Name)
                and not part.target.id.startswith("_")
                and not ast.unparse(part.annotation).startswith("ClassVar")
            }
        node = maker
    if not isinstance(node, Function):
        return {}
    a = node.args
    every = [
        *a.posonlyargs,
        *a.args,
        *filter(None, [a.vararg]),
        *a.kwonlyargs,
        *filter(None, [a.kwarg]),
    ]
    return {
        arg.arg: ast.unparse(arg.annotation) if arg.annotation else ""
        for arg in every
        if arg.arg not in ("self", "cls") and not arg.arg.startswith("_")
    }


def raised_errors(item: Item) -> set[str]:
    """Return the errors raised in the body itself; for a class, by its constructor."""
    bodies: list[ast.AST] = [item.node]
    if isinstance(item.node, ast.ClassDef):
        makers = ("__init__", "__post_init__")
        bodies = [p for p in item.node.body if isinstance(p, Function) and p.name in makers]
    calls = (n.exc for body in bodies for n in ast.walk(body) if isinstance(n, ast.Raise))
    return {ast.unparse(c.func) for c in calls if isinstance(c, ast.Call)}
