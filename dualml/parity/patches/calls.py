"""Calls in the statements of a port, and what remains of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dualml.parity.patches.dialect import parenthesize
from dualml.parity.patches.names import call_form, dotted_name
from dualml.parity.patches.rewriting import PatchSite
from dualml.parity.patches.source import Edit


def unwrap_call(site: PatchSite, call: ast.Call) -> Edit | None:
    """Return the edit that replaces a call by its first argument, or by the tensor whose method it
    calls; None if it has no arguments, or a starred one is the first."""
    form = call_form(call, site.port.imported)
    if not form.arguments:
        return None
    inner = form.arguments[0]
    if isinstance(inner, ast.Starred):
        return None
    text = parenthesize(site.port.segment(inner), inner, site.port.parents.get(call))
    return site.port.replace(call, text)


def list_calls(site: PatchSite, node: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls in a statement that can be edited; in a compound statement only those in its
    head."""
    yield from (one for one in site.expressions(node) if isinstance(one, ast.Call))


def call_name(node: ast.Call) -> str:
    """Return the last part of the name of what is called; empty if it has no name."""
    return dotted_name(node.func).rpartition(".")[2] or getattr(node.func, "attr", "")
