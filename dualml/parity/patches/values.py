"""Values of settings in a user's source: literals that have one, and how others are written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import isclose
from typing import Any

from dualml.parity.patches.names import load_dialect, setting_key
from dualml.parity.patches.namespace import REQUIRED

#: Relative distance up to which two numbers count as the same.
SAME_RTOL = 1e-6


def read_literal(node: ast.AST) -> Any:
    """Return the value of a literal, of a tuple of literals, or of a negative number; ``...`` for
    other nodes."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ...


def is_number(value: Any) -> bool:
    """Return whether a value is an int or float, but not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def has_value(written: Any, value: Any) -> bool:
    """Return whether a literal of the source, ``written``, means ``value``, numbers up to
    `SAME_RTOL` and words in any case. One number may stand for a list of equal ones, and the value
    of a number may be recorded as text (``-inf``)."""
    if isinstance(value, str) and is_number(written):
        try:
            value = float(value)
        except ValueError:
            return False
    if is_number(written) and is_number(value):
        return isclose(written, value, rel_tol=SAME_RTOL)
    if isinstance(value, list | tuple) and is_number(written):
        return len(value) > 0 and all(has_value(written, one) for one in value)
    if isinstance(written, list | tuple) and isinstance(value, list | tuple):
        pairs = zip(written, value, strict=False)
        return len(written) == len(value) and all(has_value(x, y) for x, y in pairs)
    if isinstance(written, str) and isinstance(value, str):
        return written.lower() == value.lower()
    if isinstance(written, list | tuple) and is_number(value):
        return len(written) > 0 and all(has_value(one, value) for one in written)
    return type(written) is type(value) and bool(written == value)


def written_forms(name: str, value: Any) -> list[Any]:
    """Return the values that a port may write for the value of a setting of PyTorch: the value, 1
    minus a momentum or dropout probability, and words for a flag."""
    forms = [value]
    if name == "momentum" and is_number(value):
        forms.append(float(f"{1 - value:.9g}"))
    if name in ("p", "dropout_p") and is_number(value):
        forms.append(float(f"{1 - value:.9g}"))
    words = load_dialect()["values"].get(name, {}).get(str(value).lower(), ())
    return [*forms, *(read_literal(ast.parse(word, mode="eval").body) for word in words)]


def format_literal(value: Any, like: Any = None) -> str:
    """Return the source text of a value.

    Args:
        like: value of the literal that is replaced, whose form is kept: one number for a list of
            equal ones, a list or a tuple, ``1`` for ``1.0``.
    """
    if isinstance(value, list | tuple):
        if is_number(like) and len(set(map(repr, value))) == 1:
            return format_literal(value[0], like)
        texts = [format_literal(one) for one in value]
        if isinstance(like, list):
            return f"[{', '.join(texts)}]"
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    if isinstance(value, float):
        if value.is_integer() and isinstance(like, int) and abs(value) < 1e15:
            return str(int(value))
        return f"{value:.9g}" if f"{value:.9g}" != f"{value:.0f}" else repr(value)
    if isinstance(value, str):
        return f'"{value}"'
    return repr(value)


def desired_texts(name: str, old: Any, value: Any, written: Any) -> Iterator[str]:
    """Yield source texts that give a setting the value ``old`` in place of a literal, the likeliest
    first.

    Args:
        name: the setting, as PyTorch names it.
        old: the value that the port should have.
        value: the value that it has, both as PyTorch counts.
        written: value of the literal in the port, or the default of its parameter; None if unknown.
    """
    shares = name in ("momentum", "p", "dropout_p") and is_number(old) and is_number(written)
    if shares and is_number(value) and not has_value(written, value):
        yield format_literal(float(f"{1 - old:.9g}"), written)
    words = load_dialect()["values"].get(name, {}).get(str(old).lower(), ())
    alike = [
        w for w in words if type(read_literal(ast.parse(w, mode="eval").body)) is type(written)
    ]
    yield from alike or words
    if isinstance(old, str):
        try:
            yield f'float("{old}")' if "inf" in old or "nan" in old else format_literal(float(old))
        except ValueError:
            yield format_literal(old)
    else:
        yield format_literal(old, written)
        if name == "momentum" and is_number(old):
            yield format_literal(float(f"{1 - old:.9g}"), written)


def default_of(parameters: Any, name: str) -> Any:
    """Return the default of the parameter ``name``; None if it has none or is unknown.

    Args:
        parameters: name → default of a function's parameters, or None.
    """
    value = (parameters or {}).get(name)
    return None if value == REQUIRED else value


def is_same_setting(name: str, other: str) -> bool:
    """Return whether two names of settings, of any framework, mean the same; all names with ``eps``
    do."""
    x, y = setting_key(name), setting_key(other)
    return x == y or ("eps" in x and "eps" in y)
