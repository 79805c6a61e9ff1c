"""Capture and restore the plain Python state of an object, such as counters of a user's
optimizer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, MutableMapping, MutableSequence
from typing import Any

#: Depth to which nested objects are followed.
DEPTH = 4
#: Attributes of torch optimizers that a state dict contains.
STATE_DICT_ATTRIBUTES = ("state", "param_groups")
PLAIN = (bool, int, float, complex, str, bytes, type(None))
#: Container, name and saved value of a place in an object.
SavedValue = tuple[Any, Any, Any]
#: Used as the name: the value is the set of attribute names that existed.
NAMES = object()


def capture_attributes(
    owner: Any, tensor: Callable[[Any], Any], skip: Callable[[Any], bool]
) -> list[SavedValue]:
    """Return copies of the plain values and tensors inside an object, each with its place, for
    `restore_attributes`.

    Nested objects, dicts and lists are followed to a depth of `DEPTH`; ``state`` and
    ``param_groups`` are left out, as a state dict contains them.

    Args:
        tensor: returns a copy of a tensor, or None for anything else.
        skip: returns whether a value is left out, because it is saved by other means, such as
            parameters and modules.
    """
    kept: list[SavedValue] = []
    seen: set[int] = set()

    def visit(value: Any, depth: int) -> None:
        """Append the plain values inside a value to ``kept``, and follow the objects inside."""
        if id(value) in seen or depth > DEPTH or skip(value):
            return
        seen.add(id(value))
        if isinstance(value, MutableMapping):
            kept.append((value, None, dict(value)))
            rows: Any = list(value.items())
        elif isinstance(value, MutableSequence):
            kept.append((value, None, list(value)))
            rows = list(enumerate(value))
        elif hasattr(value, "__dict__") and not callable(getattr(value, "__code__", None)):
            value = vars(value)
            kept.append((value, NAMES, frozenset(value)))
            rows = list(value.items())
        else:
            return
        for name, one in rows:
            if name in STATE_DICT_ATTRIBUTES:
                continue
            if isinstance(one, (*PLAIN, tuple)):
                kept.append((value, name, copy.copy(one)))
            elif skip(one):
                continue
            elif (same := tensor(one)) is not None:
                kept.append((value, name, same))
            else:
                if isinstance(one, MutableMapping | MutableSequence):
                    kept.append((value, name, one))  # the step may replace it by another
                visit(one, depth + 1)

    visit(owner, 0)
    return kept


def restore_attributes(kept: list[SavedValue], tensor: Callable[[Any], Any]) -> None:
    """Put all values that `capture_attributes` returned back in place, as often as wanted; plain
    attributes that were added since are deleted.

    Args:
        tensor: returns a copy of a tensor, or None for anything else.
    """
    for place, name, value in kept:
        if name is NAMES:
            for new in [one for one in place if one not in value]:
                # A counter of the class becomes an attribute of the object when it changes.
                if isinstance(place[new], PLAIN):
                    del place[new]
        elif name is None and isinstance(place, MutableMapping):
            place.clear()
            place.update(value)
        elif name is None:
            place[:] = value
    for place, name, value in kept:
        if name is not None and name is not NAMES:
            same = tensor(value)
            place[name] = value if same is None else same


def capture_numbers(owners: Iterable[Any]) -> list[SavedValue]:
    """Return the numbers and flags among the attributes of objects, such as the counter of a
    module that averages weights, for `restore_attributes`; nested objects are left out."""
    kept: list[SavedValue] = []
    for place in map(vars, owners):
        kept.append((place, NAMES, frozenset(place)))
        kept += [(place, name, one) for name, one in place.items() if isinstance(one, int | float)]
    return kept


def plain_entries(kept: list[SavedValue]) -> list[SavedValue]:
    """Return those entries (container, name, value) of `capture_attributes` whose value is a
    number, a text, a flag or None: no tensor and no container, nor a tuple."""
    return [one for one in kept if isinstance(one[1], str | int) and isinstance(one[2], PLAIN)]
