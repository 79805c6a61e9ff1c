"""Rewritings of orders, operands and arrangements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations, pairwise

from dualml.parity.patches.calls import call_name, list_calls, unwrap_call
from dualml.parity.patches.dialect import parenthesize
from dualml.parity.patches.differences import SYMBOLS, insert_argument
from dualml.parity.patches.names import dotted_name, function_key
from dualml.parity.patches.rewriting import PatchSite, Rewriting
from dualml.parity.patches.scopes import own_attributes
from dualml.parity.patches.values import is_number, read_literal

#: Functions that only move elements.
MOVES = frozenset(("permute", "transpose", "swapaxes", "flip", "roll", "reshape", "t"))


def exchange_parts(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that exchange two arguments of a call, two operands, or two items of a list
    or tuple, among the first eight."""
    for cost, statement in site.zones():
        for node in site.expressions(statement):
            rows: list[ast.expr] = []
            if isinstance(node, ast.Call):
                rows = [*node.args, *(one.value for one in node.keywords)]
            elif isinstance(node, ast.Tuple | ast.List):
                rows = node.elts
            elif isinstance(node, ast.BinOp):
                rows = [node.left, node.right]
            for x, y in combinations(rows[:8], 2):
                texts = [parenthesize(site.port.segment(one), one, node) for one in (x, y)]
                if texts[0] != texts[1] and not isinstance(x, ast.Starred):
                    kind = 0.5 if isinstance(node, ast.Tuple | ast.List) else 0.7
                    edits = site.port.replace(x, texts[1]), site.port.replace(y, texts[0])
                    yield site.rewrite(cost - 1 + kind, *edits)


def replace_operands(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that replace a local value of a function by another one, or an attribute of
    ``self`` by another one; names that the cause or the original's code mentions are likelier."""
    parts = own_attributes(site.port)
    said = " ".join([*map(str, site.change.get("names", {}).values()), site.original_code])
    for cost, statement in site.zones():
        scope = next(site.port.enclosing(statement), site.port.tree)
        stored = {
            n.id
            for n in ast.walk(scope)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        stored |= {n.arg for n in ast.walk(scope) if isinstance(n, ast.arg)} - {"self"}
        for node in site.expressions(statement):
            if not isinstance(getattr(node, "ctx", None), ast.Load):
                continue
            others: list[str] = []
            if isinstance(node, ast.Name) and node.id in stored:
                others = [one for one in sorted(stored) if one != node.id]
            elif isinstance(node, ast.Attribute) and dotted_name(node.value) == "self":
                others = [f"self.{one}" for one in sorted(parts) if one != node.attr]
            for other in others:
                likely = 1.2 if other in said else 0.0
                yield site.rewrite(cost + 0.2 - likely, site.port.replace(node, other))


def swap_order(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that apply two operations in the other order: f(g(x)), f(a + b), f(a) + b, a
    norm and its residual block, and two neighbouring statements or layers."""
    port = site.port
    for cost, statement in site.zones():
        for node in site.expressions(statement):
            if isinstance(node, ast.Call) and node.args:
                inner, name = node.args[0], port.segment(node.func)
                if isinstance(inner, ast.Call) and inner.args:
                    core = port.segment(inner.args[0])
                    text = f"{port.segment(inner.func)}({name}({core}))"
                    yield site.rewrite(cost - 1, port.replace(node, text))
                if isinstance(inner, ast.BinOp):
                    x, y = port.segment(inner.left), port.segment(inner.right)
                    sign = f" {SYMBOLS.get(type(inner.op), '+')} "
                    parent = port.parents.get(node)
                    for text in (f"{name}({x}){sign}{y}", f"{x}{sign}{name}({y})"):
                        yield site.rewrite(
                            cost - 0.5, port.replace(node, parenthesize(text, inner, parent))
                        )
            if isinstance(node, ast.BinOp):
                sign = f" {SYMBOLS.get(type(node.op), '+')} "
                for call, other, first in (
                    (node.left, node.right, True),
                    (node.right, node.left, False),
                ):
                    if isinstance(call, ast.Call) and len(call.args) == 1:
                        x, y = port.segment(call.args[0]), port.segment(other)
                        both = f"{x}{sign}{y}" if first else f"{y}{sign}{x}"
                        text = f"{port.segment(call.func)}({both})"
                        yield site.rewrite(cost - 0.5, port.replace(node, text))
            for text in move_norm(site, node):
                text = parenthesize(text, ast.parse(text, mode="eval").body, port.parents.get(node))
                yield site.rewrite(cost - 0.7, port.replace(node, text))
            if isinstance(node, ast.Call | ast.List | ast.Tuple):
                items = node.args if isinstance(node, ast.Call) else node.elts
                for a, b in pairwise(items):
                    if isinstance(a, ast.Call) and isinstance(b, ast.Call):
                        edits = port.replace(a, port.segment(b)), port.replace(b, port.segment(a))
                        yield site.rewrite(cost, *edits)
        yield from exchange_statements(site, cost, statement)


def move_norm(site: PatchSite, node: ast.expr) -> Iterator[str]:
    """Yield the texts of a residual block ``node`` with its norm at the other place:
    ``g(x + f(x))`` for ``x + f(g(x))``, and the inverse; nothing for any other expression."""
    segment = site.port.segment
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        outer, kept = node.right, segment(node.left)
        inner = outer.args[0] if isinstance(outer, ast.Call) and outer.args else None
        nested = isinstance(inner, ast.Call) and [segment(one) for one in inner.args] == [kept]
        if nested and isinstance(outer, ast.Call) and isinstance(inner, ast.Call):
            yield f"{segment(inner.func)}({kept} + {segment(outer.func)}({kept}))"
    if isinstance(node, ast.Call) and len(node.args) == 1:
        total = node.args[0]
        if isinstance(total, ast.BinOp) and isinstance(total.right, ast.Call):
            kept = segment(total.left)
            if [segment(one) for one in total.right.args] == [kept]:
                yield f"{kept} + {segment(total.right.func)}({segment(node.func)}({kept}))"


def exchange_statements(site: PatchSite, cost: float, node: ast.stmt) -> Iterator[Rewriting]:
    """Yield the rewriting that exchanges a statement with the next one in its block, if there is
    one."""
    parent = site.port.parents.get(node)
    for name in ("body", "orelse"):
        body = getattr(parent, name, [])
        if isinstance(body, list) and node in body[:-1]:
            other = body[body.index(node) + 1]
            edits = (
                site.port.replace(node, site.port.segment(other)),
                site.port.replace(other, site.port.segment(node)),
            )
            yield site.rewrite(cost, *edits)


def shift_numbers(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that change whole numbers by one or in their sign, or the second argument of
    ``tril`` and ``triu``."""
    for cost, statement in site.zones():
        for node in site.expressions(statement):
            if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 100:
                for other in (node.value - 1, node.value + 1, -node.value):
                    parent = site.port.parents.get(node)
                    signed = other < 0 and isinstance(parent, ast.UnaryOp)
                    if other != node.value and not signed:
                        yield site.rewrite(cost, site.port.replace(node, str(other)))
            if isinstance(node, ast.Call) and function_key(call_name(node)) in ("tril", "triu"):
                for number in (0, 1, -1):
                    if len(node.args) > 1:
                        edit = site.port.replace(node.args[1], str(number))
                    else:
                        edit = insert_argument(site.port.text, site.port.span(node), str(number))
                    yield site.rewrite(cost - 0.5, edit)


def undo_factor(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that undo the factor that the cause names: numbers of the statements divided
    or multiplied by it, and, least likely, the port's expression at the cause divided by it.
    Nothing is yielded if the cause is no factor."""
    value = site.change["value"]
    if not isinstance(value, list | tuple) or len(value) < 2 or value[0] != "scale":
        return
    factor = float(value[1])
    if not factor:
        return
    for cost, statement in site.zones():
        for node in site.expressions(statement):
            written = read_literal(node)
            if isinstance(node, ast.Constant) and is_number(written) and written:
                for other in (written / factor, written * factor):
                    yield site.rewrite(cost, site.port.replace(node, f"{other:.9g}"))
            elif site.code and site.port.segment(node) == site.code:
                inverse = f"/ {factor:.9g}" if abs(factor) > 1 else f"* {1 / factor:.9g}"
                product = ast.parse("a * b", mode="eval").body
                text = parenthesize(site.code, node, product)
                whole = parenthesize(f"{text} {inverse}", product, site.port.parents.get(node))
                yield site.rewrite(cost + 1, site.port.replace(node, whole))


def rearrange_parts(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings of arrangements of elements: those of `exchange_parts` and `shift_numbers`,
    subscripts left out, and calls that only move elements left out."""
    yield from exchange_parts(site)
    yield from shift_numbers(site)
    for cost, statement in site.zones():
        for node in site.expressions(statement):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                edit = site.port.replace(node, site.port.segment(node.value))
                yield site.rewrite(cost, edit)
    for cost, statement in site.zones():
        for call in list_calls(site, statement):
            moves = function_key(call_name(call)) in MOVES
            if moves and (bare := unwrap_call(site, call)) is not None:
                yield site.rewrite(cost + 0.1, bare)
