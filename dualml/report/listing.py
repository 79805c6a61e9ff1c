"""Many names in little room."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.words import Words


def several(names: Sequence[str], words: Words, most: int = 12) -> list[str]:
    """The first ones of many arms, and how many more there are."""
    if len(names) <= most + 1:
        return list(names)
    return [*names[:most], words.count("more", len(names) - most)]
