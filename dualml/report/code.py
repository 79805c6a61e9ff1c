"""Key code: our own source of a rule in the core and in the backends, read, never imported."""

from __future__ import annotations

import ast
import importlib.util
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Function = ast.FunctionDef


@dataclass(frozen=True)
class Home:
    """Where a framework's rules live.

    ``shared`` is the method of ``optim/base.py`` that applies any rule to all tensors; ``own`` the
    methods of a rule's file to show, None for all of them.
    """

    package: str
    shared: str
    own: tuple[str, ...] | None


#: Methods that say how a rule is run, not what it computes.
PLUMBING = ("is_one_operation",)

HOMES = {
    "numpy": Home("dualml", "update", ("one",)),
    "torch": Home("dualml_torch", "step", None),
    "mindspore": Home("dualml_ms", "construct", None),
}


@dataclass(frozen=True)
class Listing:
    """Source of one framework; ``text`` is empty when its package is not here."""

    framework: str
    path: str
    text: str


def listings(rule: str, frameworks: list[str]) -> list[Listing]:
    """How each framework writes the recurrence of ``rule``: ``optim/<rule>.py``."""
    return [_listing(HOMES[f], f, f"optim/{rule}.py", HOMES[f].own) for f in frameworks]


def shared(frameworks: list[str]) -> list[Listing]:
    """How each framework applies a rule to every parameter: the base of all its optimizers."""
    return [_listing(HOMES[f], f, "optim/base.py", (HOMES[f].shared,)) for f in frameworks]


def excerpt(file: str, names: tuple[str, ...], framework: str = "") -> Listing:
    """The functions and methods called ``names`` of ``package/path.py``, in their order there; a
    method of one class as ``Class.method``."""
    package, _, name = file.partition("/")
    root = _root(package)
    if root is None or not (root / name).is_file():
        return Listing(framework, file, "")
    source = (root / name).read_text(encoding="utf-8")
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    known = [("", n) for n in tree.body] + [(c.name, n) for c in classes for n in c.body]
    nodes = [
        n
        for outer, n in known
        if isinstance(n, Function) and {n.name, f"{outer}.{n.name}"} & set(names)
    ]
    parts = [_lines(source, node) for node in sorted(nodes, key=lambda n: n.lineno)]
    return Listing(framework, file, "\n\n".join(parts))


def _listing(home: Home, framework: str, name: str, wanted: tuple[str, ...] | None) -> Listing:
    root = _root(home.package)
    parts: list[str] = []
    if root is not None:
        for file, text in _read(root, root / name, wanted):
            where = f"{home.package}/{file.relative_to(root).as_posix()}"
            parts.append(text if file == root / name else f"# {where}\n{text}")
    return Listing(framework, f"{home.package}/{name}", "\n\n".join(parts))


def _root(package: str) -> Path | None:
    """The package's folder; finding the spec of a top-level package runs none of its code."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def _read(root: Path, file: Path, wanted: tuple[str, ...] | None) -> Iterator[tuple[Path, str]]:
    """The chosen methods of ``file``, then what a rule inherits from the file of another rule."""
    if not file.is_file():
        return
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [n for c in classes for n in c.body if isinstance(n, Function)]
    functions = {n.name: n for n in tree.body if isinstance(n, Function)}
    chosen = [n for n in methods if _shown(n, wanted)]
    for node in sorted([*chosen, *_called(chosen, functions)], key=lambda n: n.lineno):
        yield file, _lines(source, node)
    modules = [m for m in _parents(tree, classes, root.name) if not m.endswith(".base")]
    if modules and not chosen:  # it only sets what the other rule left open: a few lines
        yield from ((file, _lines(source, c)) for c in classes)
    for module in modules:
        yield from _read(root, root.joinpath(*module.split(".")[1:]).with_suffix(".py"), wanted)


def _shown(method: Function, wanted: tuple[str, ...] | None) -> bool:
    if wanted is not None:
        return method.name in wanted
    return method.name == "__init__" or not method.name.startswith(("__", *PLUMBING))


def _parents(tree: ast.Module, classes: list[ast.ClassDef], package: str) -> list[str]:
    """Modules of the package from which the base classes come."""
    bases = {base.id for c in classes for base in c.bases if isinstance(base, ast.Name)}
    return [
        str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(f"{package}.")
        and bases & {alias.name for alias in node.names}
    ]


def _called(chosen: list[Function], functions: dict[str, Function]) -> list[Function]:
    """Functions of the same file that ``chosen`` use, directly or not."""
    found: list[Function] = []
    queue = list(chosen)
    while queue:
        for node in ast.walk(queue.pop()):
            used = functions.get(node.id) if isinstance(node, ast.Name) else None
            if used is not None and used not in found:
                found.append(used)
                queue.append(used)
    return found


def _lines(source: str, node: Function | ast.ClassDef) -> str:
    """The node's own lines with its decorators, moved to the left margin, docstring left out."""
    lines = source.splitlines()
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    kept = range(first, (node.end_lineno or node.lineno) + 1)
    doc = node.body[0]
    if len(node.body) > 1 and ast.get_docstring(node) is not None:
        inside = range(doc.lineno, (doc.end_lineno or doc.lineno) + 1)
        return _dedent([lines[n - 1] for n in kept if n not in inside])
    return _dedent([lines[n - 1] for n in kept])


def _dedent(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n")


def highlight(text: str) -> str:
    """Python source as HTML, escaped; a block per line, classes of Pygments for the colours.

    A line too long for its column goes on four characters to the right of where it began.
    """
    from pygments import highlight as colour  # type: ignore[import-untyped]
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
    from pygments.lexers import PythonLexer  # type: ignore[import-untyped]

    formatter = HtmlFormatter(nowrap=True)
    coloured = str(colour(text, PythonLexer(), formatter)).rstrip("\n")
    pairs = zip(text.splitlines(), coloured.split("\n"), strict=True)
    return "".join(
        f'<span class="line" style="--hang: {len(plain) - len(plain.lstrip()) + 4}ch">{line}</span>'
        for plain, line in pairs
    )
