"""Rewritings of casts, of stopped gradients, and of parameters that are not trained."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dualml.parity.patches.calls import list_calls, unwrap_call
from dualml.parity.patches.dialect import parenthesize
from dualml.parity.patches.differences import remove_argument
from dualml.parity.patches.names import call_form, dotted_name, function_key, normalize_name
from dualml.parity.patches.rewriting import NAMED_SETTING, PatchSite, Rewriting
from dualml.parity.patches.statements import remove_statement

#: Functions and methods that stop gradients, and those that change a dtype.
STOPS = frozenset(("detach", "stopgradient"))
CASTS = frozenset(
    ("half", "float", "double", "bfloat16", "astype", "cast", "to", "type", "round", "rint",
     "trunc", "floor", "int", "long")
)  # fmt: skip


def remove_casts_and_rounding(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that leave out casts and roundings, a single one or all in a statement."""
    yield from remove_calls(site, CASTS, together=True)


def release_gradients(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that leave out stops of gradients (``detach``, …), and those that remove or
    invert settings of ``requires_grad``, so that parameters train."""
    yield from remove_calls(site, STOPS, together=False)
    for node in ast.walk(site.port.tree):
        if isinstance(node, ast.keyword) and node.arg == "requires_grad":
            edit = remove_argument(site.port.text, site.port.span(node))
            cost = NAMED_SETTING + 0.5 + 0.01 * site.distance(node.value)
            yield site.rewrite(cost, edit)
        if isinstance(node, ast.Assign) and sets_requires_grad(node):
            flag = "False" if getattr(node.value, "value", None) is True else "True"
            cost = NAMED_SETTING + 0.5 + 0.01 * site.distance(node)
            yield site.rewrite(cost + 0.1, site.port.replace(node.value, flag))
            yield site.rewrite(cost, remove_statement(site.port, node))
    for node in ast.walk(site.port.tree):
        if not (isinstance(node, ast.Call) and site.port.is_editable(node)):
            continue
        kept = unwrap_call(site, node)
        if kept is not None and function_key(dotted_name(node.func)) in STOPS:
            yield site.rewrite(NAMED_SETTING + 0.7 + 0.01 * site.distance(node), kept)


def sets_requires_grad(node: ast.Assign) -> bool:
    """Return whether an assignment sets an attribute ``requires_grad``."""
    targets = [one for one in node.targets if isinstance(one, ast.Attribute)]
    return any(one.attr == "requires_grad" for one in targets)


def remove_calls(site: PatchSite, names: frozenset[str], *, together: bool) -> Iterator[Rewriting]:
    """Yield rewritings that leave out calls of functions with these names (see `normalize_name`),
    keeping their first argument: each alone and, if ``together``, all in one statement."""
    for cost, statement in site.zones():
        edits = []
        for call in list_calls(site, statement):
            if is_call_of(call, names, site):
                edit = unwrap_call(site, call)
                if edit is not None:
                    edits.append((call, edit))
        for _, edit in edits:
            yield site.rewrite(cost - 1, edit)
        if together and len(edits) > 1:
            text = strip_calls(site, statement, names)
            if text is not None:
                yield site.rewrite(cost - 1.5, site.port.replace(statement, text))


def is_call_of(call: ast.Call, names: frozenset[str], site: PatchSite) -> bool:
    """Return whether a call is one of a function or method with one of these normalized names."""
    key = call_form(call, site.port.imported).key
    return bool({normalize_name(key), normalize_name(getattr(call.func, "attr", ""))} & names)


def strip_calls(site: PatchSite, statement: ast.stmt, names: frozenset[str]) -> str | None:
    """Return the text of a statement without all calls of functions and methods with these names,
    keeping their first argument or tensor; None if it has none."""
    source = site.port
    start, end = source.span(statement)
    text, changed = source.text, False
    while True:
        current = source.with_text(text)
        inside = [
            node
            for node in ast.walk(current.tree)
            if isinstance(node, ast.Call)
            and start <= current.span(node)[0] < end
            and is_call_of(node, names, site)
        ]
        edit = None
        for node in inside:
            form = call_form(node, site.port.imported)
            if form.arguments:
                inner = form.arguments[0]
                piece = parenthesize(current.segment(inner), inner, current.parents.get(node))
                edit = current.replace(node, piece)
                break
        if edit is None:
            return text[start:end] if changed else None
        text, changed = current.apply([edit]), True
        end += len(edit.text) - (edit.end - edit.start)
