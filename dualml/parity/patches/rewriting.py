"""A rewriting of a port, and the place where rewritings are looked for."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dualml.parity.patches.dialect import Translator
from dualml.parity.patches.namespace import Namespace
from dualml.parity.patches.scopes import own_attributes, unknown_names, visible_names
from dualml.parity.patches.source import Edit, SourceFile

#: How likely rewritings are, the likeliest first: the setting or the expression that the cause
#: names; the difference of both sides' expressions there; the same kind of change in that
#: statement; differences of both sides' functions; the same change elsewhere in the function, in
#: the file.
NAMED_SETTING, EXPRESSION, STATEMENT, FUNCTIONS, NEARBY, FILE = 0.0, 1.0, 2.0, 3.0, 4.0, 6.0
#: What one line of distance from the cause's place adds.
PER_LINE = 0.05
#: Largest number of statements around a place that are rewritten.
MAX_STATEMENTS = 9


@dataclass(frozen=True)
class Rewriting:
    """Edits of a port that may undo a cause.

    Attributes:
        edits: edits of the port's text; they do not overlap.
        cost: how unlikely it is, see `NAMED_SETTING`: a smaller number is likelier.
        line: line of the first edit, from 1.
    """

    edits: tuple[Edit, ...]
    cost: float
    line: int = 0


@dataclass(frozen=True)
class PatchSite:
    """The place of a cause in a port, where rewritings are looked for.

    Attributes:
        port: the port's file.
        namespace: what the names in the port's file mean.
        change: a mutation of the cause, as `dualml.parity.causes.explainer` describes it.
        lines: lines of the port where the cause shows, the likeliest first.
        code: the port's expression there; empty if unknown.
        original: the original's file; None if it cannot be read.
        original_lines, original_code: lines and expression in the original, likewise.
        attributes: the settings of the port's call.
    """

    port: SourceFile
    namespace: Namespace
    change: Mapping[str, Any]
    lines: tuple[int, ...] = ()
    code: str = ""
    original: SourceFile | None = None
    original_lines: tuple[int, ...] = ()
    original_code: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """The innermost statement at each line of the cause, without repetition."""
        found = (self.port.statement_at(line) for line in self.lines)
        return list(dict.fromkeys(one for one in found if one is not None))

    @cached_property
    def nearby(self) -> list[ast.stmt]:
        """The other simple statements of the functions (or the file) around `statements`, the
        nearest first, at most `MAX_STATEMENTS`."""
        scopes = [next(self.port.enclosing(one), self.port.tree) for one in self.statements]
        rows = {
            node: self.distance(node)
            for scope in scopes
            for node in ast.walk(scope)
            if isinstance(node, ast.stmt) and is_simple(node) and node not in self.statements
        }
        return sorted(rows, key=lambda node: rows[node])[:MAX_STATEMENTS]

    @cached_property
    def translator(self) -> Translator | None:
        """Translator of the original's expressions to the port's names; None without an
        original."""
        if self.original is None:
            return None
        return Translator(self.original, self.port, self.namespace)

    def distance(self, node: ast.AST) -> int:
        """Return the number of lines from a node to the nearest line of the cause; 0 if it covers
        one."""
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0) or 0
        gaps = [max(first - line, line - last, 0) for line in self.lines]
        return min(gaps, default=0)

    def expressions(self, statement: ast.AST) -> Iterator[ast.expr]:
        """Yield the expressions of a statement that can be edited, outer ones before their parts;
        of a compound statement only those of its head."""
        heads = [statement] if is_simple(statement) else list_heads(statement)
        for head in heads:
            for node in ast.walk(head):
                if isinstance(node, ast.expr) and self.port.is_editable(node):
                    yield node

    def zones(self) -> Iterator[tuple[float, ast.stmt]]:
        """Yield (cost, statement) for the statements to rewrite: those at the cause, then those
        around; a smaller cost is likelier."""
        for number, statement in enumerate(self.statements):
            yield STATEMENT + 0.1 * min(number, 10), statement
        for statement in self.nearby:
            yield NEARBY + PER_LINE * self.distance(statement), statement

    def rewrite(self, cost: float, *edits: Edit) -> Rewriting:
        """Return the `Rewriting` with this cost and these edits, at least one."""
        start = min(edit.start for edit in edits)
        return Rewriting(tuple(edits), cost, self.port.text.count("\n", 0, start) + 1)

    def is_known(self, text: str, node: ast.AST) -> bool:
        """Return whether a piece of source uses only names that the port knows at the place of a
        node."""
        names = visible_names(self.port, node)
        return not unknown_names(text, names, own_attributes(self.port))


def is_simple(node: ast.AST) -> bool:
    """Return whether a node is a simple statement: an assignment, return, expression, assert, raise
    or delete."""
    return isinstance(
        node,
        ast.Assign
        | ast.AugAssign
        | ast.AnnAssign
        | ast.Return
        | ast.Expr
        | ast.Assert
        | ast.Raise
        | ast.Delete,
    )


def list_heads(node: ast.AST) -> Iterable[ast.AST]:
    """Return the expressions in the head of a compound statement: a test, what a loop runs over,
    the defaults of a function."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None)]
    names = ("test", "iter", "items")
    rows = [getattr(node, name) for name in names if hasattr(node, name)]
    return [one for row in rows for one in (row if isinstance(row, list) else [row])]
