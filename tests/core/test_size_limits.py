"""Signatures and functions stay short enough to be read at once."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from source_trees import parse_source

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("dualml", "dualml_torch", "dualml_ms")
#: Number of parameters from which a signature is long, and of functions that may have one.
LONG_SIGNATURE, MAX_LONG_SIGNATURES = 8, 15
#: Largest number of lines of code of a function; functions that may be longer, with reasons.
MAX_CODE_LINES = 100
LONG_FUNCTIONS: dict[str, str] = {}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Function(NamedTuple):
    """A function or method: where it is, its number of parameters, and its lines of code."""

    place: str
    parameters: int
    lines: int


def functions_in(source: str, path: str, short: int = 0) -> Iterator[Function]:
    """Yield all functions of a file, including methods and inner functions.

    Every parameter counts, ``*args`` and ``**kwargs`` as one each, except for ``self`` and ``cls``.
    Lines of code are those that have a token other than a comment, without the docstring; of a
    function of at most ``short`` lines all are counted, which takes no tokenizer.
    """
    code = cache(lambda: code_lines(source))

    def count_lines(lines: set[int]) -> int:
        return len(lines & code()) if len(lines) > short else len(lines)

    def visit(node: ast.AST, prefix: str, in_class: bool) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, FunctionNode):
                yield Function(
                    f"{path}:{prefix}{child.name}",
                    count_parameters(child, in_class),
                    count_lines(body_lines(child)),
                )
                yield from visit(child, f"{prefix}{child.name}.", False)
            elif isinstance(child, ast.ClassDef):
                yield from visit(child, f"{prefix}{child.name}.", True)
            else:
                yield from visit(child, prefix, in_class)

    yield from visit(parse_source(source), "", False)


def code_lines(source: str) -> set[int]:
    """Return the lines that have a token other than a comment."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            found.update(range(token.start[0], token.end[0] + 1))
    return found


def count_parameters(node: FunctionNode, in_class: bool) -> int:
    """Count the parameters of a function, without ``self`` and ``cls``."""
    every = node.args
    count = len(every.posonlyargs) + len(every.args) + len(every.kwonlyargs)
    count += (every.vararg is not None) + (every.kwarg is not None)
    static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
    return count - (in_class and not static)


def body_lines(node: FunctionNode) -> set[int]:
    """Return the lines from ``def`` to the end, without the docstring."""
    lines = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0]
        lines -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return lines


@pytest.fixture(scope="module")
def functions() -> list[Function]:
    """All functions of the core and the backends."""
    return [
        function
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for function in functions_in(
            path.read_text("utf-8"), path.relative_to(ROOT).as_posix(), MAX_CODE_LINES
        )
    ]


def test_few_functions_have_many_parameters(functions: list[Function]) -> None:
    """The exceptions are the public API, functions with the signature of a framework's or an
    exercise's function, and commands whose options are independent."""
    found = [function.place for function in functions if function.parameters >= LONG_SIGNATURE]
    assert len(found) <= MAX_LONG_SIGNATURES, "\n".join(found)


def test_no_function_is_too_long(functions: list[Function]) -> None:
    found = {function.place for function in functions if function.lines > MAX_CODE_LINES}
    assert found == set(LONG_FUNCTIONS)
    assert all(len(reason.split()) > 3 for reason in LONG_FUNCTIONS.values())


def test_parameters_and_lines_are_counted() -> None:
    source = (
        "class A:\n"
        "    def f(self, a, /, b, *c, d=1, **e):\n"
        "        '''Return\n\n        nothing.'''\n"
        "        # why\n\n"
        "        def g(x): return x\n"
        "        return '''\n    two lines'''\n"
        "    @staticmethod\n"
        "    def h(a): pass\n"
        "async def k(a): pass\n"
    )
    assert list(functions_in(source, "p.py")) == [
        Function("p.py:A.f", 5, 4),
        Function("p.py:A.f.g", 1, 1),
        Function("p.py:A.h", 1, 1),
        Function("p.py:k", 1, 1),
    ]
