"""Checks of what a student's code returns, before the judge reads it: a value of another type is
reported with the student's line instead of an error of the judge."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

#: Letters of NumPy's dtypes of booleans and real numbers.
NUMBER_KINDS = "biuf"


class WrongReturn(TypeError):
    """Error: a student's code returned, or left in an attribute, a value of another type than the
    exercise's.

    Attributes:
        function: class or function, or a method as ``ColumnLinear.forward``, that made the value.
    """

    def __init__(self, where: str, received: str, expected: str, function: str) -> None:
        super().__init__(f"{where}: {received} → {expected}")
        self.function = function


def describe_value(value: Any) -> str:
    """Return the type of a value in a few words, as ``numpy.ndarray (3, 2)`` or ``None``."""
    if value is None:
        return "None"
    kind = type(value)
    name = (
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    )
    shape = getattr(value, "shape", None)
    return f"{name} {tuple(shape)}" if isinstance(shape, tuple) else name


def read_tensor(
    value: Any,
    convert: Callable[[Any], Any],
    function: str,
    part: str = "(…)",
    expected: str = "Tensor",
) -> Any:
    """Convert a returned tensor to an array.

    Args:
        convert: function that converts a tensor of the framework; it raises `AttributeError`,
            `TypeError`, `ValueError` or `RuntimeError` for what is none.
        function: class or function that returned it.
        part: what was returned, as ``(…)[2]``.
        expected: type that the exercise asks for.

    Raises:
        WrongReturn: it is no tensor, or none that holds numbers which NumPy knows.
    """
    try:
        array = convert(value)
        if array.dtype.kind in NUMBER_KINDS:
            return array
    except (AttributeError, TypeError, ValueError, RuntimeError):
        pass
    raise WrongReturn(f"{function}{part}", describe_value(value), expected, function)


def read_tensors(values: Any, convert: Callable[[Any], Any], function: str) -> dict[str, Any]:
    """Convert returned tensors, in a list or another iterable, to arrays ``0``, ``1``, …; raise
    `WrongReturn` for anything else."""
    items = read_items(values, "list of Tensor", function)
    return {
        str(i): read_tensor(value, convert, function, f"(…)[{i}]") for i, value in enumerate(items)
    }


def read_items(values: Any, expected: str, function: str) -> list[Any]:
    """Return the items of a returned iterable; raise `WrongReturn` for what is none."""
    try:
        return list(values)
    except TypeError:
        raise WrongReturn(f"{function}(…)", describe_value(values), expected, function) from None


def read_attribute(made: Any, name: str, convert: Callable[[Any], Any], function: str) -> Any:
    """Convert a tensor in an attribute of a student's object to an array; raise `WrongReturn` if
    there is none; ``function`` is the method that should have set it."""
    target = function.partition(".")[0]
    if not hasattr(made, name):
        raise WrongReturn(f"{target}.{name}", "no attribute", "Tensor", function)
    try:
        return read_tensor(getattr(made, name), convert, target, f".{name}")
    except WrongReturn as error:
        error.function = function
        raise


def read_number(value: Any, function: str) -> float:
    """Return a returned number, also a tensor of one number, as a float; raise `WrongReturn` for
    anything else."""
    try:
        return float(value)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        raise WrongReturn(f"{function}(…)", describe_value(value), "float", function) from None


def read_numbers(values: Any, function: str) -> list[float]:
    """Return a returned list of numbers as floats; raise `WrongReturn` for anything else."""
    return [read_number(v, function) for v in read_items(values, "list of float", function)]


def find_return_line(source: str, function: str) -> int:
    """Return the line of the last ``return`` of a function or method (``Class.method``) of a
    program, else, and of a class, the line where it begins; 0 if it is not there."""
    tree: ast.AST | None = ast.parse(source)
    for name in function.split("."):
        body = getattr(tree, "body", [])
        tree = next((node for node in body if getattr(node, "name", None) == name), None)
        if tree is None:
            return 0
    if isinstance(tree, ast.ClassDef):
        return tree.lineno
    returns = [node.lineno for node in walk_function(tree) if isinstance(node, ast.Return)]
    return max(returns, default=int(getattr(tree, "lineno", 0)))


def walk_function(node: ast.AST | None) -> list[ast.AST]:
    """Return all nodes inside of a function, without functions, lambdas and classes in it and their
    nodes."""
    found: list[ast.AST] = []
    pending = list(ast.iter_child_nodes(node)) if node is not None else []
    while pending:
        child = pending.pop()
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        found.append(child)
        pending += ast.iter_child_nodes(child)
    return found
