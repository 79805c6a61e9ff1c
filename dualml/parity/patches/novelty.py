"""How much of a patched port the original has: a patch makes both sources more alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dualml.parity.patches.names import canonical_text
from dualml.parity.patches.rewriting import PatchSite
from dualml.parity.patches.source import SourceFile

#: What each expression that the original does not have adds to a cost, and how many count.
PER_NOVELTY, MAX_NOVELTY = 0.25, 4


@dataclass
class Novelty:
    """Counts what a patch writes that the original does not have: of two rewritings, the one after
    which both sources say the same is likelier.

    Attributes:
        site: the place of the cause.
    """

    site: PatchSite

    @cached_property
    def original_texts(self) -> frozenset[str]:
        """The texts of the original's expressions, see `list_expressions`; empty without an
        original."""
        original = self.site.original
        return frozenset() if original is None else frozenset(list_expressions(original))

    def count(self, source: SourceFile, line: int) -> int:
        """Return how many expressions in the function around a line (from 1) are not among those of
        the original."""
        statement = source.statement_at(line)
        if statement is None:
            return 0
        scope = next(source.enclosing(statement), statement)
        return sum(text not in self.original_texts for text in list_expressions(source, scope))

    def score(self, text: str, line: int) -> float:
        """Return the number to add to the cost of a patched text: positive if it has more
        expressions that the original lacks than the unpatched port, negative if fewer; 0 without an
        original.

        Args:
            line: line of the patch, from 1.

        Raises:
            SyntaxError: the text is no valid Python.
        """
        source = self.site.port.with_text(text)
        ast.parse(text)
        if not self.original_texts:
            return 0.0
        more = self.count(source, line) - self.count(self.site.port, line)
        return PER_NOVELTY * max(-MAX_NOVELTY, min(MAX_NOVELTY, more))


def list_expressions(source: SourceFile, scope: ast.AST | None = None) -> Iterator[str]:
    """Yield a text of each expression of a file, or of the node ``scope``, except bare names; the
    texts are equal in both frameworks."""
    for node in ast.walk(scope or source.tree):
        if isinstance(node, ast.expr) and not isinstance(node, ast.Name):
            yield canonical_text(node, source.imported)
