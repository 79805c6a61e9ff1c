"""Rewritings of whole statements: removed, inserted, replaced."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dualml.parity.patches.dialect import Translator, Untranslatable
from dualml.parity.patches.rewriting import PatchSite, Rewriting, is_simple
from dualml.parity.patches.source import Edit, SourceFile


def remove_statement(source: SourceFile, node: ast.stmt) -> Edit:
    """Return the edit that removes a statement with its lines; it is replaced by ``pass`` if it is
    the only one of its block, or shares its lines with others."""
    parent = source.parents.get(node)
    for name in ("body", "orelse", "finalbody"):
        if getattr(parent, name, None) == [node]:
            return source.replace(node, "pass")
    start, end = source.span(node)
    first = source.line_starts[node.lineno - 1]
    last = source.line_starts[node.end_lineno or node.lineno]
    if not source.text[first:start].strip() and not source.text[end:last].strip():
        return Edit(first, last, "")
    return Edit(start, end, "pass")


def insert_statements(
    site: PatchSite,
    translator: Translator,
    missing: Sequence[ast.stmt],
    anchor: ast.stmt,
    before: bool,
    cost: float,
    edits: Sequence[Edit] = (),
) -> Iterator[Rewriting]:
    """Yield one rewriting that writes statements of the original, in the port's names, before or
    after a statement of the port; nothing if they are not simple, use names that the port does not
    know, or overlap ``edits``.

    Args:
        missing: the statements of the original.
        anchor: the statement of the port.
        before: whether they come before ``anchor``; else after it.
        edits: further edits of the rewriting.
    """
    port = site.port
    if not all(map(is_simple, missing)):
        return
    try:
        texts = [translator.translate(one) for one in missing]
    except Untranslatable:
        return
    start = port.line_starts[anchor.lineno - 1]
    column = port.text[start : port.span(anchor)[0]]
    if column.strip() or not all(site.is_known(text, anchor) for text in texts):
        return
    end = "\r\n" if "\r\n" in port.text else "\n"
    block = "".join(f"{column}{text}{end}" for text in texts)
    at = start if before else port.line_starts[anchor.end_lineno or anchor.lineno]
    added = Edit(at, at, block)
    if all(edit.end <= at or edit.start > at for edit in edits):
        yield site.rewrite(cost, *edits, added)


def replace_statements(
    site: PatchSite, translator: Translator, ours: ast.stmt, theirs: ast.stmt, cost: float
) -> Iterator[Rewriting]:
    """Yield one rewriting that replaces statement ``theirs`` of the port by statement ``ours`` of
    the original; nothing if they are not simple, or use names that the port does not know."""
    if is_simple(ours) and is_simple(theirs):
        try:
            text = translator.translate(ours, theirs)
        except Untranslatable:
            return
        if site.is_known(text, theirs):
            yield site.rewrite(cost + 0.2, site.port.replace(theirs, text))
