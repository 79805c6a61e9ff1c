"""Places at which a mistake acts: on one rank, in one update, on one tensor …

A mistake is a name, as ``sum_undivided``; rules ask whether it is among their flags. With a place,
``sum_undivided@rank=0``, it acts there alone. A place is one condition or several joined by ``&``,
each ``AXIS=INDEX`` (negative indices count from the end) or ``AXIS=!INDEX``, everywhere but there.
Rules narrow their flags to where they are computing, `flags_at`, so that the search tries every
mistake at every place without a rule for each pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from dualml.course.exercise import Flags

#: Index and number of indices of an axis.
Position = tuple[int, int]


@dataclass(frozen=True)
class Condition:
    """One condition of a place.

    Attributes:
        axis: what is indexed: ``rank``, ``tensor``, ``step``, ``micro_batch`` …
        index: index on the axis; negative ones count from the end.
        elsewhere: whether the mistake acts everywhere but at this index.
    """

    axis: str
    index: int
    elsewhere: bool = False

    def holds(self, position: Position) -> bool:
        """Return whether a position on the axis meets the condition."""
        at, count = position
        return (at == (self.index + count if self.index < 0 else self.index)) != self.elsewhere

    def __str__(self) -> str:
        """Return the condition as it is written in a flag."""
        return f"{self.axis}={'!' if self.elsewhere else ''}{self.index}"


@cache
def parse_place(place: str) -> tuple[Condition, ...]:
    """Parse a place such as ``rank=!0&step=1``; an empty text has no conditions.

    Raises:
        ValueError: a condition is not ``AXIS=INDEX`` or ``AXIS=!INDEX``.
    """
    found = []
    for text in filter(None, place.split("&")):
        axis, equals, index = text.partition("=")
        if not axis or not equals:
            raise ValueError(f"not a place: {text!r}; expected AXIS=INDEX or AXIS=!INDEX")
        found.append(Condition(axis, int(index.removeprefix("!")), index.startswith("!")))
    return tuple(found)


def split_flag(flag: str) -> tuple[str, str]:
    """Split a flag into the mistake's name, without its form, and its place: ``aliased#2@rank=0``
    → ``aliased``, ``rank=0``."""
    name, _, place = flag.partition("@")
    return name.partition("#")[0], place


def flags_at(flags: Flags, **here: Position) -> Flags:
    """Return the mistakes that act at a position: names whose conditions on these axes hold there;
    conditions on other axes stay with their names.

    Args:
        here: axis → (index, number of indices).
    """
    if not any("@" in flag for flag in flags):
        return flags
    return frozenset(narrow_flags(flags, here))


def narrow_flags(flags: Flags, here: dict[str, Position]) -> Iterator[str]:
    """Yield the flags that act at a position, without the conditions that were looked at."""
    for flag in flags:
        name, _, place = flag.partition("@")
        conditions = parse_place(place)
        if all(c.holds(here[c.axis]) for c in conditions if c.axis in here):
            rest = "&".join(str(c) for c in conditions if c.axis not in here)
            yield f"{name}@{rest}" if rest else name


def place_flags(flags: Sequence[str], places: Sequence[str]) -> Iterator[str]:
    """Yield every mistake at every place, in the order of the places."""
    for place in places:
        yield from (f"{flag}@{place}" for flag in flags)
