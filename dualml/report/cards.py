"""A card of the principle section: a method in formulas and words, and the arms that use it."""

from __future__ import annotations

from collections.abc import Sequence

from dualml.common.words import Messages
from dualml.report.blocks import Block, Card, Formula, Prose
from dualml.report.presentation import shorten_list


def make_card(
    words: Messages,
    title: str,
    formulas: Sequence[str],
    explanation: str,
    arms: Sequence[str],
    *,
    counts: Sequence[str] = (),
    source: str = "",
    most: int = 12,
    code: bool = False,
) -> Card:
    """Return a card with formulas, an explanation and, in small letters, ``counts``, the first
    ``most`` arms and the source."""
    colon = words("list.colon")
    small = [*counts, words("page.arms") + colon + ", ".join(shorten_list(arms, words, most))]
    small += [words("page.source") + colon + source] if source else []
    blocks: list[Block] = [*map(Formula, formulas), Prose(explanation)]
    return Card(title, [*blocks, *(Prose(text, small=True) for text in small)], code)
