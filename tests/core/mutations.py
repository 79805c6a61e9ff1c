"""Mutations of files that people and programs write: values, texts and bytes, drawn by
hypothesis."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

#: Texts that some reader may not expect.
TEXTS = (
    "", " ", "x", "x" * 5000, "\x00", "a\nb", "\ud800", "\u202e漢字🎉", "../../x", "/", ".",
    "$x_1^{", "<script>", "{0}{x}", "%s%d", "nan", "null", "-1", "1e999", "²", "9" * 5000, "cpu",
    "[[[", "seed0", "\x1b[31m", "`", "|", "con", "numpy", "torch", "train", "equal", "different",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 7, 255, 256, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**400, 0.0, -0.0, 0.5,
    -0.5, 1e-300, 5e-324, 1e300, -1e300, 3.5e38, math.nan, math.inf, -math.inf, True, False,
)  # fmt: skip


def nested(depth: int, kind: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind else {"a": value}
    return value


ODD = st.one_of(
    st.sampled_from([None, [], {}, [[]], [None], {"": None}, {"a": {"b": 1}}, [1, "x"], [0.0] * 3]),
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXTS),
    st.builds(nested, st.sampled_from([2, 8, 31, 33, 200]), st.integers(0, 1)),
    st.integers(-5, 300),
    st.floats(),
    st.text(max_size=8),
)
ALIKE: dict[type, list[Any]] = {
    kind: [number for number in NUMBERS if type(number) is kind] for kind in (int, float, bool)
}
HOW = ("replace", "replace", "replace", "drop", "rename", "more", "swap", "wrap", "repeat")


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path of every field; of long lists, of the first few entries."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value[:4])
    for key, inner in pairs:
        yield (*here, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*here, key))


def mutated(draw: Any, value: Any, known: list[tuple[Any, ...]] | None = None) -> Any:
    """Return a table or list with one to three fields changed."""
    changed = copy.deepcopy(value)
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        all_places = list(places(changed)) if known is None else known
        if not all_places:
            break
        try:
            change(draw, changed, draw(st.sampled_from(all_places)), all_places)
        except (KeyError, IndexError, TypeError):  # the place is gone since the last change
            continue
    return changed


def value_at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def change(draw: Any, value: Any, place: tuple[Any, ...], known: list[tuple[Any, ...]]) -> None:
    inner, last, how = value_at(value, place[:-1]), place[-1], draw(st.sampled_from(HOW))
    odd = copy.deepcopy(draw(ODD))
    if type(inner[last]) in ALIKE and draw(st.booleans()):  # what a schema lets pass
        how, odd = "replace", draw(st.sampled_from(ALIKE[type(inner[last])]))
    if how == "drop":
        del inner[last]
    elif how == "rename" and isinstance(inner, dict):
        inner[draw(st.sampled_from(TEXTS))] = inner.pop(last)
    elif how == "more" and isinstance(inner[last], dict):
        inner[last][draw(st.sampled_from(TEXTS))] = odd
    elif how == "more" and isinstance(inner[last], list):
        inner[last].append(odd)
    elif how == "swap":
        inner[last] = copy.deepcopy(value_at(value, draw(st.sampled_from(known))))
    elif how == "wrap":
        inner[last] = [inner[last]]
    elif how == "repeat" and isinstance(inner[last], list):
        inner[last] = inner[last] * draw(st.sampled_from([0, 2, 3]))
    else:
        inner[last] = odd


def mutated_bytes(draw: Any, content: bytes) -> bytes:
    """Return bytes that are truncated, flipped, doubled, or interspersed with others."""
    edited = bytearray(content)
    for _ in range(draw(st.sampled_from([1, 1, 2, 5]))):
        start = draw(st.integers(0, len(edited)))
        how = draw(st.sampled_from(["cut", "flip", "flip", "flip", "insert", "double", "zero"]))
        if how == "cut":
            del edited[start:]
        elif how == "flip" and start < len(edited):
            edited[start] ^= draw(st.integers(1, 255))
        elif how == "insert":
            edited[start:start] = draw(st.binary(max_size=8))
        elif how == "double":
            edited += edited[start : start + 64]
        elif how == "zero":
            edited[start : start + 8] = bytes(min(8, len(edited) - start))
    return bytes(edited)


def toml(value: Any) -> str:
    """Return a value as TOML, as far as TOML has such a value; None becomes a text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(str(k))} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value}".replace("e+", "e")
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "")


def document(table: dict[str, Any]) -> str:
    """Return a TOML file with one line per top-level key."""
    return "".join(f"{toml(str(key))} = {toml(value)}\n" for key, value in table.items())
