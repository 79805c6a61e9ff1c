"""Take the tensors out of nested arguments and results, and put others in their places."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def flatten(
    value: Any, is_tensor: Callable[[Any], bool]
) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Return the tensors of a nested value in order, and a function that takes a list of other
    tensors and returns the value with these in their places; the value itself is not changed.

    Mappings, tuples and lists are searched; everything else is kept as it is.

    Example:
        >>> numbers, rebuild = flatten({"x": 1.0, "rest": ("a", [2.0])}, lambda v: type(v) is float)
        >>> numbers, rebuild([3.0, 4.0])
        ([1.0, 2.0], {'x': 3.0, 'rest': ('a', [4.0])})
    """
    tensors: list[Any] = []
    return tensors, take_tensors(value, is_tensor, tensors)


def take_tensors(
    part: Any, is_tensor: Callable[[Any], bool], tensors: list[Any]
) -> Callable[[Sequence[Any]], Any]:
    """Append the tensors of a nested value to ``tensors``, in place; return a function that
    rebuilds the value from a list like ``tensors``.

    This is no function inside of `flatten`, which would refer to itself: such a cycle would keep
    the tensors, and with them a graph and the weights of a block, until Python collects garbage.
    """
    if is_tensor(part):
        tensors.append(part)
        place = len(tensors) - 1
        return lambda values: values[place]
    if type(part) is dict:  # refers to no tensor, unlike `rebuild_mapping`
        inner = {key: take_tensors(item, is_tensor, tensors) for key, item in part.items()}
        return lambda values: {key: make(values) for key, make in inner.items()}
    if type(part) in (tuple, list):
        items, kind = [take_tensors(item, is_tensor, tensors) for item in part], type(part)
        return lambda values: kind(make(values) for make in items)
    if isinstance(part, Mapping):
        inner = {key: take_tensors(item, is_tensor, tensors) for key, item in part.items()}
        return lambda values: rebuild_mapping(
            part, {key: make(values) for key, make in inner.items()}
        )
    if isinstance(part, tuple | list):
        parts = [take_tensors(item, is_tensor, tensors) for item in part]
        return lambda values: rebuild_sequence(part, [make(values) for make in parts])
    return lambda values: part


def rebuild_mapping(old: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """Return a copy of a mapping in which these items are set; a dict of them if its type has no
    item assignment."""
    if not hasattr(old, "__setitem__"):
        return items
    made: Any = copy.copy(old)
    for key, item in items.items():
        made[key] = item
    return made


def rebuild_sequence(old: Sequence[Any], items: list[Any]) -> Any:
    """Return a named tuple of the type of ``old``, or else a tuple or a list, with these items."""
    if hasattr(old, "_fields"):
        return type(old)(*items)
    return tuple(items) if isinstance(old, tuple) else items
