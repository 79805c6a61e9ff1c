"""Rewritings of functions, operators and terms: other ones, missing ones, too many."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dualml.parity.patches.calls import call_name, unwrap_call
from dualml.parity.patches.dialect import Untranslatable, parenthesize
from dualml.parity.patches.differences import SYMBOLS
from dualml.parity.patches.names import (
    OPERATORS,
    call_form,
    dotted_name,
    function_key,
    normalize_name,
)
from dualml.parity.patches.rewriting import PatchSite, Rewriting
from dualml.parity.patches.source import Edit

#: Operators that are mistaken for each other, as text.
CONFUSED = {
    "<": ("<=", ">", ">="), "<=": ("<", ">=", ">"), ">": (">=", "<", "<="), ">=": (">", "<=", "<"),
    "==": ("!=",), "!=": ("==",), "+": ("-", "*"), "-": ("+",), "*": ("/", "+"), "/": ("*",),
    "&": ("|",), "|": ("&",), "//": ("/",), "**": ("*",),
}  # fmt: skip
#: Functions that are mistaken for each other in masks and reductions.
PAIRS = {"tril": "triu", "triu": "tril", "all": "any", "any": "all", "max": "min", "min": "max",
         "minimum": "maximum", "maximum": "minimum", "sin": "cos", "cos": "sin"}  # fmt: skip


def remove_terms(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that leave out a call (keeping its first argument or tensor), one side of an
    operation with two operands, or a sign."""
    value = site.change["value"]
    word = normalize_name(str(value[0])) if isinstance(value, list | tuple) and value else ""
    for cost, statement in site.zones():
        for node in site.expressions(statement):
            if isinstance(node, ast.Call):
                key = call_form(node, site.port.imported).key
                likely = bool(word) and normalize_name(key) in word
                if (edit := unwrap_call(site, node)) is not None:
                    yield site.rewrite(cost - (1.5 if likely else 0.0), edit)
            if isinstance(node, ast.BinOp):
                parent = site.port.parents.get(node)
                for kept in (node.left, node.right):
                    text = parenthesize(site.port.segment(kept), kept, parent)
                    yield site.rewrite(cost + 0.1, site.port.replace(node, text))
            if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
                yield site.rewrite(cost, site.port.replace(node, site.port.segment(node.operand)))


def wrap_calls(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that apply the call which the original makes at the cause to an expression
    of the port's statements; none without an original."""
    translator, operation = site.translator, str(site.change["operation"])
    if translator is None:
        return
    names = []
    code = original_call(site)
    if code is not None and dotted_name(code.func).startswith("self."):
        names.append(dotted_name(code.func))
    try:
        names.append(translator.spell(function_key(operation)))
    except Untranslatable:
        if not names:
            return
    for cost, statement in site.zones():
        for node in site.expressions(statement):
            if isinstance(node, ast.Constant | ast.Starred | ast.Slice) or not is_value(site, node):
                continue
            for name in names:
                text = f"{name}({site.port.segment(node)})"
                if site.is_known(text, node):
                    yield site.rewrite(cost + 0.3, site.port.replace(node, text))


def original_call(site: PatchSite) -> ast.Call | None:
    """Return the syntax tree of the original's code at the cause if it is a call, else None."""
    try:
        node = ast.parse(site.original_code.strip() or "0", mode="eval").body
    except SyntaxError:
        return None
    return node if isinstance(node, ast.Call) else None


def is_value(site: PatchSite, node: ast.expr) -> bool:
    """Return whether an expression is a value that a call can take: not stored, called, a part of a
    dotted name or slice, an imported name or ``self``."""
    parent = site.port.parents.get(node)
    if isinstance(getattr(node, "ctx", ast.Load()), ast.Store):
        return False
    if isinstance(parent, ast.Call) and parent.func is node:
        return False
    return not isinstance(parent, ast.Attribute | ast.Slice) and not (
        isinstance(node, ast.Name) and node.id in site.port.imported | {"self"}
    )


def replace_functions(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that call the original's function instead of the port's, and those of
    `replace_operators`."""
    change = site.change
    value = change["value"][0] if isinstance(change["value"], list | tuple) else change["value"]
    wrong, right = normalize_name(str(value)), str(change["old"] or change["operation"])
    for cost, statement in site.zones():
        for node in site.expressions(statement):
            if isinstance(node, ast.Call):
                likely = 1.5 if wrong in normalize_name(call_name(node)) else 0.0
                for text in function_spellings(site, node, right):
                    if text != site.port.segment(node.func):
                        yield site.rewrite(cost - likely, site.port.replace(node.func, text))
    yield from replace_operators(site)


def function_spellings(site: PatchSite, node: ast.Call, right: str) -> Iterator[str]:
    """Yield the texts with which a call can name another function: members of the module that it
    names now, classes for classes and functions for functions; for a method of a tensor the other
    method.

    Args:
        node: the call in the port.
        right: name of the function that it should call.
    """
    name = dotted_name(node.func)
    alias, _, last = name.rpartition(".")
    members = site.namespace.members.get(alias, ())
    for word in members:
        if function_key(word) == function_key(right) and word[0].isupper() == last[0].isupper():
            yield f"{alias}.{word}"
    if not members and isinstance(node.func, ast.Attribute) and right in site.namespace.methods:
        yield f"{site.port.segment(node.func.value)}.{right}"


def replace_operators(site: PatchSite) -> Iterator[Rewriting]:
    """Yield rewritings that exchange operators, or functions, which are mistaken for each other
    (`CONFUSED`, `PAIRS`)."""
    old = function_key(str(site.change.get("old") or ""))
    wanted = {symbol for kind, symbol in SYMBOLS.items() if OPERATORS.get(kind.__name__) == old}
    for cost, statement in site.zones():
        for node in site.expressions(statement):
            if isinstance(node, ast.BinOp | ast.Compare):
                for text, edit in operator_edits(site, node):
                    yield site.rewrite(cost - (1.5 if text in wanted else 0.2), edit)
            if isinstance(node, ast.Attribute) and node.attr in PAIRS:
                _, end = site.port.span(node)
                yield site.rewrite(cost, Edit(end - len(node.attr), end, PAIRS[node.attr]))


def operator_edits(site: PatchSite, node: ast.BinOp | ast.Compare) -> Iterator[tuple[str, Edit]]:
    """Yield (new operator, edit) for each operator that the one of an operation with two operands
    is mistaken for (`CONFUSED`)."""
    if isinstance(node, ast.Compare):
        if len(node.ops) != 1:
            return
        symbol, left, right = SYMBOLS.get(type(node.ops[0]), ""), node.left, node.comparators[0]
    else:
        symbol, left, right = SYMBOLS.get(type(node.op), ""), node.left, node.right
    start, end = site.port.span(left)[1], site.port.span(right)[0]
    between = site.port.text[start:end]
    if symbol and between.count(symbol) == 1:
        at = start + between.index(symbol)
        for other in CONFUSED.get(symbol, ()):
            yield other, Edit(at, at + len(symbol), other)
