"""Changes of one expression of a rule: another operand, operator, order or factor."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

OTHER_OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.Pow: (ast.Mult,),
}


class Names(NamedTuple):
    """Expressions that a line may read: arrays and numbers, as source."""

    arrays: tuple[str, ...]
    scalars: tuple[str, ...]


def parse(text: str) -> ast.expr:
    """Return the expression of a source text."""
    return ast.parse(text, mode="eval").body


def reads_array(node: ast.AST, arrays: set[str]) -> bool:
    """Return whether an expression is computed from arrays; a mapping of arrays is none."""
    if isinstance(node, ast.Dict):
        return False
    return any(
        ast.unparse(n) in arrays for n in ast.walk(node) if isinstance(n, ast.Name | ast.Subscript)
    )


def changed_expressions(value: ast.expr, names: Names) -> Iterator[tuple[ast.expr, int]]:
    """Yield (expression, cost) for every version of an expression with one change anywhere in
    it."""
    paths = list(operand_paths(value))
    arrays = set(names.arrays)
    for path, node in paths:
        for new, cost in changed_nodes(node, names, arrays):
            yield replace_node(value, path, new), cost
    operands = [ast.unparse(n) for _, n in paths if is_operand(n)]
    used = sorted(set(operands))
    for text in (text for text in used if operands.count(text) > 1):
        for other in names.arrays if text in arrays else names.scalars:
            if other != text:
                yield replace_operands(value, {text: parse(other)}), 1
    for i, first in enumerate(used):
        for second in used[i + 1 :]:
            if (first in arrays) == (second in arrays):
                yield swap_names(value, first, second), 1


Path = tuple[tuple[str, int], ...]


def operand_paths(node: ast.expr, path: Path = ()) -> Iterator[tuple[Path, ast.expr]]:
    """Yield every operand and operation of an expression, with its path from the root."""
    yield path, node
    if isinstance(node, ast.Subscript | ast.Attribute | ast.Name | ast.Constant):
        return
    for name, child in ast.iter_fields(node):
        if name in ("func", "keys", "op", "ctx", "ops"):
            continue
        for i, one in enumerate(child if isinstance(child, list) else [child]):
            if isinstance(one, ast.expr):
                yield from operand_paths(one, (*path, (name, i if isinstance(child, list) else -1)))


def replace_node(root: ast.expr, path: Path, new: ast.expr) -> ast.expr:
    """Return an expression with the part at ``path`` replaced; nothing else is copied."""
    if not path:
        return new
    (name, i), *rest = path
    made, child = copy.copy(root), getattr(root, name)
    if i < 0:
        setattr(made, name, replace_node(child, tuple(rest), new))
    else:
        setattr(
            made,
            name,
            [replace_node(c, tuple(rest), new) if k == i else c for k, c in enumerate(child)],
        )
    return made


def is_operand(node: ast.expr) -> bool:
    """Return whether a node is a name, a field of the rule or an entry of the state."""
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript)


def changed_nodes(node: ast.expr, names: Names, arrays: set[str]) -> Iterator[tuple[ast.expr, int]]:
    """Yield (replacement, cost) of one node: other operands, operations and functions, further
    factors.

    Args:
        names: what the line may read.
        arrays: those of the names that are arrays.
    """
    text, array = ast.unparse(node), reads_array(node, arrays)
    if is_operand(node):
        others = names.arrays if array else names.scalars
        for other in others:
            if other != text:
                yield parse(other), 1 if array else 2
    if isinstance(node, ast.BinOp):
        yield from changed_operations(node)
    if isinstance(node, ast.Call) and len(node.args) == 1:
        yield node.args[0], 1
    if isinstance(node, ast.IfExp):
        yield node.body, 1
        yield node.orelse, 1
    if isinstance(node, ast.Tuple | ast.Dict):
        return
    if not array and not isinstance(node, ast.Compare):
        yield parse(f"1 - ({text})"), 2
        yield parse(f"2 * ({text})"), 3
        yield parse(f"({text}) ** 2"), 3
    if array:
        yield parse(f"-({text})"), 2
        for function in ("abs", "sign", "sqrt", "square"):
            yield parse(f"np.{function}({text})"), 2
        for factor in names.scalars:
            yield parse(f"({text}) * {factor}"), 3
            yield parse(f"({text}) / {factor}"), 3
            yield parse(f"({text}) * (1 - {factor})"), 3


def changed_operations(node: ast.BinOp) -> Iterator[tuple[ast.expr, int]]:
    """Yield (expression, cost): an operation without one of its operands, with another operator, or
    in another order."""
    yield node.left, 1
    yield node.right, 1
    if isinstance(node.op, ast.Sub):
        yield ast.UnaryOp(ast.USub(), node.right), 2
    if isinstance(node.op, ast.Div):
        yield ast.BinOp(ast.Constant(1), ast.Div(), node.right), 2
    if isinstance(node.op, ast.Sub | ast.Div | ast.Pow):
        yield ast.BinOp(node.right, node.op, node.left), 2
    for kind in OTHER_OPERATORS.get(type(node.op), ()):
        yield ast.BinOp(node.left, kind(), node.right), 3 if kind is ast.Div else 2


def swap_names(value: ast.expr, first: str, second: str) -> ast.expr:
    """Return an expression in which two operands have changed places, everywhere."""
    return replace_operands(value, {first: parse(second), second: parse(first)})


def replace_operands(value: ast.expr, other: Mapping[str, ast.expr]) -> ast.expr:
    """Return an expression that reads other operands: source → what it reads instead."""

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            if isinstance(node, ast.expr) and is_operand(node) and ast.unparse(node) in other:
                return other[ast.unparse(node)]
            return super().visit(node)

    made: ast.expr = Replace().visit(copy.deepcopy(value))
    return made
