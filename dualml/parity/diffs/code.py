"""Extract the source code of probes without importing it (the core imports no framework)."""

from __future__ import annotations

import ast
import functools
import importlib.util
import io
import textwrap
import tokenize
from collections.abc import Iterable, Sequence
from pathlib import Path

from dualml.parity.diffs import VARIANTS
from dualml.parity.diffs.entry import DifferenceEntry

#: Top-level definitions that a file of probes may contain.
Defined = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@functools.cache
def read_source(package: str, topic: str) -> str:
    """Return the text of ``PACKAGE/parity/diffs/TOPIC.py``; empty if there is no such package.
    Raise `OSError` if it has no such topic."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    return (Path(spec.origin).parent / "parity" / "diffs" / f"{topic}.py").read_text("utf-8")


@functools.cache
def parse_definitions(package: str, topic: str) -> dict[str, Defined]:
    """Map each top-level name of ``PACKAGE/parity/diffs/TOPIC.py`` to its definition, in order."""
    nodes: dict[str, Defined] = {}
    for node in ast.parse(read_source(package, topic)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            nodes[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            nodes |= {name: node for target in targets for name in referenced_names(target)}
    return nodes


@functools.cache
def function_sources(package: str, topic: str) -> dict[str, str]:
    """Map each function of ``PACKAGE/parity/diffs/TOPIC.py`` to its source; empty if there is no
    such package."""
    return {
        name: definition_source(package, topic, node)
        for name, node in parse_definitions(package, topic).items()
        if isinstance(node, ast.FunctionDef)
    }


def definition_source(package: str, topic: str, node: Defined) -> str:
    """Return the source lines of a definition, including its decorators."""
    decorators = getattr(node, "decorator_list", [])
    first = min(one.lineno for one in (node, *decorators))
    return "\n".join(read_source(package, topic).splitlines()[first - 1 : node.end_lineno])


def referenced_names(node: ast.AST) -> set[str]:
    """Return every name that occurs in a piece of code, attribute names excepted."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def function_body(source: str) -> str:
    """Return the body of a function's source, without its docstring."""
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    if ast.get_docstring(node) is not None:
        begin = node.body[0].end_lineno
    else:  # the head is one logical line; comments may stand before the first statement
        read = tokenize.generate_tokens(io.StringIO(source).readline)
        ends = (one.end[0] for one in read if one.type == tokenize.NEWLINE)
        begin = next(line for line in ends if line >= node.lineno)
    return textwrap.dedent("\n".join(source.splitlines()[begin:])).strip("\n")


def probe_code(entry: DifferenceEntry, package: str) -> dict[str, str]:
    """Return the function bodies, without docstring, of an entry's probes for one backend, by
    variant: ``plain`` and, where it differs, ``equal``."""
    known = function_sources(package, entry.topic)
    return {
        variant: function_body(known[name])
        for variant, name in probe_names(entry).items()
        if name in known
    }


def probe_names(entry: DifferenceEntry) -> dict[str, str]:
    """Map each variant to the name that its probe function has, or would have if there is none."""
    return {variant: entry.function + suffix for variant, suffix in VARIANTS.items()}


def helper_source(entries: Sequence[DifferenceEntry], package: str) -> str:
    """Return the helper code that the probes of one topic's entries use from their file.

    Each helper appears once; the probes themselves are left out. Empty if there is none.
    """
    if not entries:
        return ""
    topic = entries[0].topic
    known = parse_definitions(package, topic)
    own = {name for entry in entries for name in probe_names(entry).values()}
    needed = reachable_names(known, own & known.keys()) - own
    shown = dict.fromkeys(node for name, node in known.items() if name in needed)
    return "\n\n".join(definition_source(package, topic, node) for node in shown)


def reachable_names(known: dict[str, Defined], start: Iterable[str]) -> set[str]:
    """Return the names in ``start``, and all names of a file that their definitions use, directly
    or indirectly.

    Args:
        known: top-level names of the file → their definitions.
    """
    reachable: set[str] = set()
    left = set(start)
    while left:
        reachable |= left
        left = {n for name in left for n in referenced_names(known[name]) if n in known} - reachable
    return reachable


def code_with_helpers(entry: DifferenceEntry, package: str) -> dict[str, str]:
    """Return `probe_code` and, under ``helpers``, the code that the probes use, if any."""
    more = helper_source([entry], package)
    return probe_code(entry, package) | ({"helpers": more} if more else {})


def package_of(side: str) -> str:
    """Return the name of the package that holds a framework's probes; ``side`` is ``torch`` or
    ``mindspore``."""
    return {"torch": "dualml_torch", "mindspore": "dualml_ms"}[side]
