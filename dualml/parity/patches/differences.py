"""Differences of the original's and the port's expressions, as edits of the port."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence

from dualml.parity.patches.dialect import Translator, Untranslatable, parenthesize
from dualml.parity.patches.names import call_form, canonical_text, dotted_name
from dualml.parity.patches.source import Edit

#: Operator of the syntax tree → its text.
SYMBOLS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@",
    ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
#: Operators whose operands may change places.
COMMUTATIVE = (ast.Add, ast.Mult)


def expression_edits(translator: Translator, a: ast.AST, b: ast.AST) -> Iterator[Edit]:
    """Yield the smallest edits of the port that each remove one difference between expression ``a``
    of the original and expression ``b`` of the port; nothing where both are equal up to the
    frameworks' names."""
    ours, theirs = translator.original.imported, port_imports(translator)
    if canonical_text(a, ours) == canonical_text(b, theirs):
        return
    if isinstance(a, ast.BinOp) and isinstance(b, ast.BinOp):
        yield from binary_edits(translator, a, b)
    elif isinstance(a, ast.Call) and isinstance(b, ast.Call):
        yield from call_edits(translator, a, b)
    elif (
        isinstance(a, ast.Compare) and isinstance(b, ast.Compare) and len(a.ops) == len(b.ops) == 1
    ):
        yield from operand_edits(
            translator, (a.left, *a.comparators), (b.left, *b.comparators), (a.ops[0], b.ops[0])
        )
    elif type(a) is type(b) and not isinstance(a, ast.Constant | ast.Name | ast.Attribute):
        yield from field_edits(translator, a, b)
    else:
        yield from whole_edit(translator, a, b)


def port_imports(translator: Translator) -> frozenset[str]:
    """Return the names that the port's file imports."""
    return translator.port.imported


def whole_edit(translator: Translator, a: ast.AST, b: ast.AST) -> Iterator[Edit]:
    """Yield the edit that replaces expression ``b`` of the port by expression ``a`` of the
    original, in the port's names; nothing if that cannot be written or changes nothing."""
    port = translator.port
    if not (port.is_editable(b) and isinstance(a, ast.expr)):
        return
    try:
        text = translator.translate(a, b)
    except Untranslatable:
        return
    edit = port.replace(b, parenthesize(text, a, port.parents.get(b)))
    if edit.text != port.segment(b):
        yield edit


def binary_edits(translator: Translator, a: ast.BinOp, b: ast.BinOp) -> Iterator[Edit]:
    """Yield the edits of the port between two operations with two operands, of the original and the
    port."""
    ours, theirs = translator.original.imported, port_imports(translator)
    left, right = canonical_text(a.left, ours), canonical_text(a.right, ours)
    first, second = canonical_text(b.left, theirs), canonical_text(b.right, theirs)
    same = type(a.op) is type(b.op)
    if same and isinstance(a.op, COMMUTATIVE):
        if left == second:
            yield from expression_edits(translator, a.right, b.left)
            return
        if right == first and left != second:
            yield from expression_edits(translator, a.left, b.right)
            return
    if not same and not {left, right} & {first, second}:
        yield from whole_edit(translator, a, b)
        return
    if not same and not (left == first and right == second):
        yield from whole_edit(translator, a, b)
    yield from operand_edits(translator, (a.left, a.right), (b.left, b.right), (a.op, b.op))


def operand_edits(
    translator: Translator,
    ours: Sequence[ast.expr],
    theirs: Sequence[ast.expr],
    operators: tuple[ast.AST, ast.AST],
) -> Iterator[Edit]:
    """Yield the edits of the port that make its operator, and each of its operands, that of the
    original.

    Args:
        ours, theirs: two operands of the original, and of the port.
        operators: operator of the original, and of the port.
    """
    port = translator.port
    if type(operators[0]) is not type(operators[1]):
        old, new = (SYMBOLS.get(type(one), "") for one in reversed(operators))
        start, end = port.span(theirs[0])[1], port.span(theirs[1])[0]
        between = port.text[start:end]
        if old and new and between.count(old) == 1:
            at = start + between.index(old)
            yield Edit(at, at + len(old), new)
    for x, y in zip(ours, theirs, strict=True):
        yield from expression_edits(translator, x, y)


def call_edits(translator: Translator, a: ast.Call, b: ast.Call) -> Iterator[Edit]:
    """Yield the edits of the port between a call of the original and one of the port: other
    function, arguments, and settings that are added, changed or removed."""
    x, y = call_form(a, translator.original.imported), call_form(b, port_imports(translator))
    if x.key != y.key or abs(len(x.arguments) - len(y.arguments)) > 1:
        if (
            x.key.startswith("self.")
            and y.key.startswith("self.")
            and len(x.arguments) == len(y.arguments)
        ):
            name = x.key
            if translator.port.is_editable(b.func):
                yield translator.port.replace(b.func, name)
        yield from whole_edit(translator, a, b)
        return
    port = translator.port
    for one, other in zip(x.arguments, y.arguments, strict=False):
        yield from expression_edits(translator, one, other)
    parameters = list(translator.namespace.signatures.get(called_name(b), ()))
    for name, keyword in x.keywords.items():
        if name in y.keywords:
            yield from expression_edits(translator, keyword.value, y.keywords[name].value)
            continue
        try:
            value = translator.translate(keyword.value)
            word = translator.spell_setting(str(keyword.arg), called_name(b))
        except Untranslatable:
            continue
        position = parameters.index(word) if word in parameters else len(b.args)
        if position < len(b.args):
            yield from expression_edits(translator, keyword.value, b.args[position])
        else:
            yield insert_argument(port.text, port.span(b), f"{word}={value}")
    for name, keyword in y.keywords.items():
        if name not in x.keywords and len(x.arguments) <= len(y.arguments):
            yield remove_argument(port.text, port.span(keyword))
    if len(x.arguments) > len(y.arguments) or len(x.arguments) < len(y.arguments):
        yield from whole_edit(translator, a, b)


def called_name(call: ast.Call) -> str:
    """Return the dotted name of what is called; empty if it has none."""
    return dotted_name(call.func)


def insert_argument(text: str, span: tuple[int, int], argument: str) -> Edit:
    """Return the edit that appends an argument to a call.

    Args:
        text: text of the file.
        span: character offsets of the call's start and end.
        argument: text of the argument.
    """
    close = span[1] - 1
    before = text[span[0] : close].rstrip()
    end = span[0] + len(before)
    if before.endswith("("):
        return Edit(end, end, argument)
    if before.endswith(","):
        # Arguments on lines of their own, with a comma behind the last one.
        line = before[before.rfind("\n") + 1 :]
        indent = line[: len(line) - len(line.lstrip())] if "\n" in before else ""
        lines = f"\n{indent}{argument}," if "\n" in before else f" {argument},"
        return Edit(end, end, lines)
    return Edit(end, end, f", {argument}")


def remove_argument(text: str, span: tuple[int, int]) -> Edit:
    """Return the edit that removes an argument of a call, or an item of a list, with its comma.

    Args:
        text: text of the file.
        span: character offsets of the argument's start and end.
    """
    start, end = span
    before = text[:start].rstrip()
    if before.endswith(","):
        return Edit(len(before) - 1, end, "")
    rest = text[end:]
    if rest.lstrip().startswith(","):
        end += rest.index(",") + 1
        end += len(text[end:]) - len(text[end:].lstrip(" "))
    return Edit(start, end, "")


def field_edits(translator: Translator, a: ast.AST, b: ast.AST) -> Iterator[Edit]:
    """Yield the edits of the port between the parts of two nodes of one type; if the parts cannot
    be matched, the edit that replaces the whole node."""
    edits: list[Edit] = []
    for (name, x), (_, y) in zip(ast.iter_fields(a), ast.iter_fields(b), strict=True):
        if name in ("ctx", "type_comment", "annotation", "returns"):
            continue
        rows = [x] if not isinstance(x, list) else x, [y] if not isinstance(y, list) else y
        if len(rows[0]) != len(rows[1]):
            yield from whole_edit(translator, a, b)
            return
        for one, other in zip(*rows, strict=True):
            if isinstance(one, ast.AST) and isinstance(other, ast.AST):
                edits += expression_edits(translator, one, other)
            elif one != other or type(one) is not type(other):
                yield from whole_edit(translator, a, b)
                return
    yield from edits


def drop_overlaps(edits: Sequence[Edit]) -> list[Edit]:
    """Return edits in their order, without repetition and without those that overlap an earlier
    one."""
    kept: list[Edit] = []
    for edit in dict.fromkeys(edits):
        if all(edit.end <= one.start or one.end <= edit.start for one in kept):
            kept.append(edit)
    return kept


def group_edits(edits: Sequence[Edit]) -> Iterator[tuple[Edit, ...]]:
    """Yield groups of edits to try: each edit alone, then all together that do not overlap, then,
    if these are three or four, all pairs of them."""
    rows = list(dict.fromkeys(edits))
    yield from ((edit,) for edit in rows)
    together = drop_overlaps(rows)
    if len(together) > 1:
        yield tuple(together)
    if 2 < len(together) <= 4:
        yield from itertools.combinations(together, 2)
