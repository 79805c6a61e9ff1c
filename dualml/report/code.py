"""Key code: our own source in the core and in the backends, read as text and never imported."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from dualml.common.words import Messages
from dualml.report.blocks import Block, Code, Notice, RowBlock, SectionBlock

Function = ast.FunctionDef


@dataclass(frozen=True)
class RuleSource:
    """The files and methods of a framework that implement optimizers.

    Attributes:
        package: name of the Python package.
        base_method: method of ``algorithms/optim/base.py`` that applies any rule to all parameters.
        rule_methods: methods of a rule's file to show; None: all of them.
    """

    package: str
    base_method: str
    rule_methods: tuple[str, ...] | None


#: Methods that control how a rule is executed, not what it computes.
PLUMBING = ("is_one_operation",)

HOMES = {
    "numpy": RuleSource("dualml", "update", ("update_param",)),
    "torch": RuleSource("dualml_torch", "step", None),
    "mindspore": RuleSource("dualml_ms", "construct", None),
}


def section(title: str, codes: Sequence[Code], words: Messages) -> SectionBlock:
    """Return a section with the listings of the frameworks side by side, below those of the
    reference (``numpy``) and of no framework, which have a row of their own each. A notice replaces
    a listing without text (its package is not installed)."""
    alone: list[Block] = []
    others: list[Block] = []
    for code in codes:
        block = code if code.text else Notice(words("intro.missing_source"))
        (alone if code.who in ("", "numpy") else others).append(block)
    return SectionBlock("", title, [*alone, *([RowBlock(others)] if others else [])])


def rule_listings(rule: str, frameworks: Sequence[str]) -> list[Code]:
    """Return the update rule of an optimizer as one listing for each of the frameworks (keys of
    `HOMES`), from ``algorithms/optim/RULE.py`` and the rule that it inherits from."""
    return [_listing(f, f"algorithms/optim/{rule}.py", HOMES[f].rule_methods) for f in frameworks]


def base_listings(frameworks: Sequence[str]) -> list[Code]:
    """Return for each of the frameworks (keys of `HOMES`) a listing of its method of
    ``algorithms/optim/base.py`` that applies a rule to all parameters."""
    return [_listing(f, "algorithms/optim/base.py", (HOMES[f].base_method,)) for f in frameworks]


def excerpt(file: str, names: Sequence[str], who: str = "") -> Code:
    """Return a listing of the top-level functions and the methods called ``names`` in
    ``package/path.py``, in the order of the file; ``Class.method`` selects the method of one class.
    The text is empty if there is no such file or it has none of them. ``who`` is the framework that
    the listing belongs to."""
    source = _source(file)
    tree = ast.parse(source)
    known = [("", node) for node in tree.body]
    known += [(c.name, node) for c in _classes(tree) for node in c.body]
    nodes = [
        node
        for outer, node in known
        if isinstance(node, Function) and {node.name, f"{outer}.{node.name}"} & {*names}
    ]
    parts = [_lines(source, node) for node in sorted(nodes, key=lambda node: node.lineno)]
    return Code("\n\n".join(parts), file, who)


def read_listings(heading: str, frameworks: Collection[str] = ()) -> list[Code]:
    """Return the excerpts that ``listings.toml`` has under a heading, without those of frameworks
    that are not among the given ones."""
    return [
        excerpt(entry["file"], entry["functions"], entry.get("who", ""))
        for entry in _read_listing_table()[heading]
        if entry.get("only") in (None, *frameworks)
    ]


@cache
def _read_listing_table() -> dict[str, list[dict[str, Any]]]:
    """Read ``listings.toml``: heading → its entries."""
    return tomllib.loads((files("dualml.report") / "listings.toml").read_text("utf-8"))


def _listing(framework: str, name: str, wanted: tuple[str, ...] | None) -> Code:
    """Return the ``wanted`` methods of a file of the framework (None: all), with the functions they
    call and what the rule inherits; its text is empty if the package is not installed."""
    package = HOMES[framework].package
    own = f"{package}/{name}"
    parts = [
        text if file == own else f"# {file}\n{text}" for file, text in _read(package, own, wanted)
    ]
    return Code("\n\n".join(parts), own, framework)


def _source(file: str) -> str:
    """Return the source of ``package/path.py``, empty if there is none. Finding the spec of a
    top-level package does not execute its code."""
    package, _, name = file.partition("/")
    spec = importlib.util.find_spec(package)
    paths = [Path(root) / name for root in (spec and spec.submodule_search_locations) or ()]
    return next((path.read_text("utf-8") for path in paths if path.is_file()), "")


def _classes(tree: ast.Module) -> list[ast.ClassDef]:
    """Return the top-level class definitions of a module's syntax tree."""
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]


def _read(package: str, file: str, wanted: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield (file, source) of the ``wanted`` methods of ``file`` and of the functions they call
    there, then the same for the file of the rule that it inherits from. A class that inherits and
    has none of these methods is yielded whole."""
    source = _source(file)
    tree = ast.parse(source)
    classes = _classes(tree)
    functions = {n.name: n for n in tree.body if isinstance(n, Function)}
    chosen = [
        n
        for c in classes
        for n in c.body
        if isinstance(n, Function) and _matches_names(n.name, wanted)
    ]
    for node in sorted([*chosen, *_called_functions(chosen, functions)], key=lambda n: n.lineno):
        yield file, _lines(source, node)
    bases = {base.id for c in classes for base in c.bases if isinstance(base, ast.Name)}
    modules = [
        node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        and bases & {alias.name for alias in node.names}
        and node.module
        and node.module.startswith(f"{package}.")
        and not node.module.endswith(".base")
    ]
    if modules and not chosen:  # the class only configures the inherited rule: a few lines
        yield from ((file, _lines(source, c)) for c in classes)
    for module in modules:
        yield from _read(package, f"{module.replace('.', '/')}.py", wanted)


def _matches_names(method: str, wanted: Sequence[str] | None) -> bool:
    """Return whether a listing includes ``method``: those in ``wanted``; if that is None,
    ``__init__`` and all methods but other special ones and `PLUMBING`."""
    if wanted is not None:
        return method in wanted
    return method == "__init__" or not method.startswith(("__", *PLUMBING))


def _called_functions(chosen: list[Function], functions: dict[str, Function]) -> list[Function]:
    """Return those of ``functions`` (name → top-level function of the file) that ``chosen`` call or
    only name, directly or indirectly."""
    called: list[Function] = []
    queue = list(chosen)
    while queue:
        for node in ast.walk(queue.pop()):
            used = functions.get(node.id) if isinstance(node, ast.Name) else None
            if used is not None and used not in called:
                called.append(used)
                queue.append(used)
    return called


def _lines(source: str, node: Function | ast.ClassDef) -> str:
    """Return the source lines of a node with its decorators, dedented and without the docstring,
    which is kept if it is the whole body."""
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    lines = dict(enumerate(source.splitlines()[first - 1 : node.end_lineno], first))
    doc = node.body[0]
    if len(node.body) > 1 and ast.get_docstring(node) is not None:
        for number in range(doc.lineno, (doc.end_lineno or doc.lineno) + 1):
            del lines[number]
    return textwrap.dedent("\n".join(lines.values())).strip("\n")


def code_sections(
    parts: Mapping[str, Sequence[Code]], words: Messages, prefix: str = ""
) -> Iterator[Block]:
    """Yield a `section` per part that has listings; its heading is the message
    ``code.PREFIX`` + ``KEY``."""
    return (
        section(words(f"code.{prefix}{key}"), each, words) for key, each in parts.items() if each
    )


def highlight(text: str, language: str = "python") -> str:
    """Return source in a language that Pygments knows as escaped HTML: a ``<span>`` per line,
    coloured with the CSS classes of Pygments.

    A line too long for its column wraps with a hanging indent of four characters.
    """
    from pygments import highlight as colour  # type: ignore[import-untyped]
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]

    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    lexer, formatter = get_lexer_by_name(language, stripnl=False), HtmlFormatter(nowrap=True)
    coloured = str(colour(text, lexer, formatter)).removesuffix("\n")
    pairs = zip(text.split("\n"), coloured.split("\n"), strict=True)
    return "".join(
        f'<span class="line" style="--hang: {len(plain) - len(plain.lstrip()) + 4}ch">{line}</span>'
        for plain, line in pairs
    )


def loop_diff(package: str, name: str, title: str) -> Code | None:
    """Return the diff from ``methods/single.py`` to ``methods/NAME.py`` of a backend package with
    all lines, unchanged ones too, after ``+ ``, ``- `` or two spaces. ``single`` itself is shown in
    full, without marks. ``title`` is set as ``who`` of the listing. None if there is no such file
    or the package is not installed."""
    file = f"{package}/experiment/methods/{name}.py"
    before, after = method_source(f"{package}/experiment/methods/single.py"), method_source(file)
    if not before or not after or before == after:
        return Code(after, file, title) if after else None
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return Code("\n".join(line for line in lines if line[:1] != "?"), file, title)


def count_added_lines(change: Code) -> int:
    """Return the number of non-blank lines, comments included, that a diff adds; 0 for code that is
    no diff."""
    lines = change.text.splitlines()
    if any(line[:2] not in ("", "  ", "- ", "+ ", "? ") for line in lines):
        return 0
    return sum(line.startswith("+ ") and bool(line[2:].strip()) for line in lines)


def method_source(file: str) -> str:
    """Return the top-level statements of ``package/path.py``, i.e. constants, classes, functions
    and imports except those that all methods share, without docstrings, top-level decorators and
    the lines between statements; empty if the package is not installed."""
    source = _source(file)
    lines, tree = source.splitlines(), ast.parse(source)
    dropped = {number for node in ast.walk(tree) for number in _docstring_lines(node)}
    dropped |= {number + 1 for number in dropped if lines[number : number + 1] == [""]}
    numbers = (
        number
        for node in tree.body
        if not _is_boilerplate(node)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    )
    return "\n".join(lines[number - 1] for number in numbers if number not in dropped)


def _docstring_lines(node: ast.AST) -> range:
    """Return the line numbers of a class's or function's docstring; empty for other nodes."""
    if not isinstance(node, ast.ClassDef | ast.FunctionDef) or ast.get_docstring(node) is None:
        return range(0)
    return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def _is_boilerplate(node: ast.stmt) -> bool:
    """Return whether a statement is a docstring or an import that all methods share."""
    common = isinstance(node, ast.ImportFrom) and (node.module or "").endswith(
        ("methods.base", "__future__", "dualml.common.errors")
    )
    return common or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
