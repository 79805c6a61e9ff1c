"""Rewritings that make a port's source like the original's where the two differ."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from dualml.parity.patches.dialect import Translator
from dualml.parity.patches.differences import expression_edits, group_edits
from dualml.parity.patches.function_pairs import Function, flat_statements, function_pairs
from dualml.parity.patches.names import canonical_text
from dualml.parity.patches.rewriting import (
    EXPRESSION,
    FILE,
    FUNCTIONS,
    PER_LINE,
    PatchSite,
    Rewriting,
    is_simple,
    list_heads,
)
from dualml.parity.patches.source import Edit, SourceFile
from dualml.parity.patches.statements import insert_statements, remove_statement, replace_statements

#: How alike two statements must be to be compared.
MIN_SIMILARITY = 0.5


def reference_rewritings(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that make the port more like the original: of the expressions at the cause,
    of the statements there, then of whatever else differs in functions of one name; none without an
    original."""
    translator = site.translator
    if translator is None or site.original is None:
        return
    yield from code_rewritings(site, translator)
    for x_line in site.original_lines:
        x = site.original.statement_at(x_line)
        for number, y in enumerate(site.statements):
            if x is not None:
                cost = EXPRESSION + 0.3 + 0.1 * number
                yield from pair_rewritings(site, translator, x, y, cost)
    seen = set()
    for ours, theirs, near in function_pairs(site):
        if (ours, theirs) in seen:
            continue
        seen.add((ours, theirs))
        for rewriting in function_rewritings(site, translator, ours, theirs):
            cost = rewriting.cost + (0.0 if near else FILE - FUNCTIONS)
            yield Rewriting(rewriting.edits, cost, rewriting.line)


def code_rewritings(site: PatchSite, translator: Translator) -> Iterator[Rewriting]:
    """Yield rewritings that remove the differences between the expressions that the cause names on
    both sides."""
    if site.original is None:
        return
    ours = find_code(site.original, site.original_lines, site.original_code)
    theirs = find_code(site.port, site.lines, site.code)
    for a in ours[:1]:
        for b in theirs[:1]:
            for group in group_edits(list(expression_edits(translator, a, b))):
                yield from rewrite_if_known(site, EXPRESSION + 0.1 * (len(group) > 1), b, group)


def find_code(source: SourceFile, lines: Sequence[int], code: str) -> list[ast.expr]:
    """Return the expressions whose text is ``code``, without regard to spaces, in the statement at
    the first of the lines that has any; empty if there is none."""
    if not code:
        return []
    wanted = "".join(code.split())
    for line in lines:
        statement = source.statement_at(line)
        if statement is None:
            continue
        found = [
            node
            for node in ast.walk(statement)
            if isinstance(node, ast.expr)
            and source.is_editable(node)
            and "".join(source.segment(node).split()) == wanted
        ]
        if found:
            return found
    return []


def rewrite_if_known(
    site: PatchSite, cost: float, node: ast.AST, edits: Sequence[Edit]
) -> Iterator[Rewriting]:
    """Yield one rewriting with these edits if they use only names that the port knows at ``node``;
    else nothing."""
    if edits and all(site.is_known(edit.text, node) for edit in edits if is_source(edit.text)):
        yield site.rewrite(cost, *edits)


def is_source(text: str) -> bool:
    """Return whether the text of an edit is valid Python by itself: an expression or statements."""
    try:
        ast.parse(text.strip())
    except SyntaxError:
        return False
    return True


def pair_rewritings(
    site: PatchSite, translator: Translator, a: ast.stmt, b: ast.stmt, cost: float
) -> Iterator[Rewriting]:
    """Yield rewritings that remove the differences between statement ``a`` of the original and
    statement ``b`` of the port.

    Args:
        cost: cost of rewritings of a single edit; those of several edits get a larger one.
    """
    pairs: list[tuple[ast.AST, ast.AST]] = []
    if is_simple(a) and is_simple(b):
        values = getattr(a, "value", None), getattr(b, "value", None)
        if values[0] is not None and values[1] is not None:
            pairs.append((values[0], values[1]))
        targets = getattr(a, "targets", [])[:1], getattr(b, "targets", [])[:1]
        pairs += [
            (x, y)
            for x, y in zip(*targets, strict=False)
            if isinstance(x, ast.Tuple) and isinstance(y, ast.Tuple)
        ]
    elif type(a) is type(b):
        pairs += zip(list_heads(a), list_heads(b), strict=False)
    edits = [edit for x, y in pairs for edit in expression_edits(translator, x, y)]
    for group in group_edits(edits):
        yield from rewrite_if_known(site, cost + 0.05 * (len(group) - 1), b, group)


def statement_text(node: ast.stmt, imported: frozenset[str]) -> str:
    """Return a text of a statement (of a compound one, of its head) that is equal for both
    frameworks' spellings of the same code.

    Args:
        imported: names that the statement's file imports.
    """
    if is_simple(node):
        return canonical_text(node, imported)
    parts = ", ".join(canonical_text(one, imported) for one in list_heads(node))
    return f"{type(node).__name__}[{parts}]"


def function_rewritings(
    site: PatchSite, translator: Translator, ours: Function, theirs: Function
) -> Iterator[Rewriting]:
    """Yield rewritings that remove the differences between two functions: between similar
    statements, statements that only one side has, blocks as a whole, and one change in several
    statements.

    Args:
        ours, theirs: the function of the original, and that of the port.
    """
    a, b = flat_statements(ours), flat_statements(theirs)
    texts = [statement_text(one, translator.original.imported) for one in a]
    others = [statement_text(one, site.port.imported) for one in b]

    def cost_of(node: ast.AST) -> float:
        return FUNCTIONS + PER_LINE * site.distance(node)

    repeated: dict[tuple[str, str], list[Edit]] = {}
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, texts, others, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        pairs = pair_similar(texts[i1:i2], others[j1:j2])
        for i, j in pairs.items():
            y = b[j1 + j]
            for rewriting in pair_rewritings(site, translator, a[i1 + i], y, cost_of(y) - 0.5):
                yield rewriting
                if len(rewriting.edits) == 1:
                    edit = rewriting.edits[0]
                    change = site.port.text[edit.start : edit.end], edit.text
                    repeated.setdefault(change, []).append(edit)
        missing = [x for n, x in enumerate(a[i1:i2]) if n not in pairs]
        extra = [y for n, y in enumerate(b[j1:j2]) if n not in pairs.values()]
        at = b[j1] if j1 < len(b) else b[-1]
        cost = cost_of(at)
        for y in extra:
            if is_simple(y):
                yield site.rewrite(cost_of(y), remove_statement(site.port, y))
        following = {id(x): b[j1 + pairs[n]] for n, x in enumerate(a[i1:i2]) if n in pairs}
        for x in missing:
            after = [
                following[id(y)] for y in a[i1:i2] if y.lineno > x.lineno and id(y) in following
            ]
            anchor, before = (
                (after[0], True) if after else (b[j2], True) if j2 < len(b) else (b[-1], False)
            )
            yield from insert_statements(site, translator, [x], anchor, before, cost)
        if len(missing) > 1 and not pairs:
            anchor, before = (b[j2], True) if j2 < len(b) else (b[-1], False)
            edits = [remove_statement(site.port, y) for y in extra if is_simple(y)]
            yield from insert_statements(site, translator, missing, anchor, before, cost, edits)
        if missing and extra and len(missing) == len(extra) == 1:
            yield from replace_statements(site, translator, missing[0], extra[0], cost)
    for edits in repeated.values():  # one mistake in several statements
        if len(edits) > 1:
            cost = min(
                cost_of(site.port.statement_at(line) or theirs) for line in site.lines or (1,)
            )
            yield site.rewrite(cost - 0.4, *edits)


def pair_similar(ours: Sequence[str], theirs: Sequence[str]) -> dict[int, int]:
    """Return position in ``ours`` → position in ``theirs`` of similar statements, both in
    increasing order; a single statement on each side is always paired.

    Args:
        ours, theirs: texts of statements.
    """
    if len(ours) == len(theirs) == 1:
        return {0: 0}
    pairs: dict[int, int] = {}
    last = -1
    for i, text in enumerate(ours):
        rows = [
            (SequenceMatcher(None, text, theirs[j], autojunk=False).ratio(), -j)
            for j in range(last + 1, len(theirs))
        ]
        if rows and max(rows)[0] >= MIN_SIMILARITY:
            last = pairs[i] = -max(rows)[1]
    return pairs
