"""What an object remembers in plain Python: the counters and schedules of users' own optimizers."""

from __future__ import annotations

import copy
from collections.abc import Callable, MutableMapping, MutableSequence
from typing import Any

#: How far objects inside objects are followed.
DEPTH = 4
#: Of torch's optimizers, what a state dict holds.
KNOWN = ("state", "param_groups")
PLAIN = (bool, int, float, complex, str, bytes, type(None))
#: A place and what stood there.
Kept = tuple[Any, Any, Any]
#: In the place of a name: the value is the names that there were.
NAMES = object()


def remembered(owner: Any, tensor: Callable[[Any], Any], skip: Callable[[Any], bool]) -> list[Kept]:
    """Places inside of an object with copies of their plain values.

    Args:
        tensor: a copy of a tensor, or None for what is no tensor.
        skip: what is kept by other means: parameters, modules.
    """
    kept: list[Kept] = []
    seen: set[int] = set()

    def visit(value: Any, depth: int) -> None:
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
            if name in KNOWN:
                continue
            if isinstance(one, (*PLAIN, tuple)):
                kept.append((value, name, copy.copy(one)))
            elif skip(one):
                continue
            elif (same := tensor(one)) is not None:
                kept.append((value, name, same))
            else:
                if isinstance(one, MutableMapping | MutableSequence):
                    kept.append((value, name, one))  # another may be put in its place
                visit(one, depth + 1)

    visit(owner, 0)
    return kept


def remind(kept: list[Kept], tensor: Callable[[Any], Any]) -> None:
    """Put everything back."""
    for place, name, value in kept:
        if name is NAMES:
            for new in [one for one in place if one not in value]:
                # What is counted in a class stands in the object from its first change on.
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
