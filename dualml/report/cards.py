"""A card of the principle section: a method in formulas and words, and the arms that use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dualml.common.words import Messages
from dualml.report.blocks import Block, Card, Formula, Prose
from dualml.report.presentation import shorten_list


@dataclass(frozen=True)
class CardFooter:
    """The small print of a card.

    Args:
        arms: the arms that use the method.
        source: the publication that describes it.
        counts: sentences with its numbers of messages and bytes.
        most: number of arms that are named.
    """

    arms: Sequence[str]
    source: str = ""
    counts: Sequence[str] = ()
    most: int = 12

    def lines(self, words: Messages) -> list[str]:
        """Return the lines of the small print: each of the counts, one line that names the arms
        (about ``most`` of them, then the number of others), and the source if there is one."""
        colon, named = words("list.colon"), shorten_list(self.arms, words, self.most)
        source = [words("page.source") + colon + self.source] if self.source else []
        return [*self.counts, words("page.arms") + colon + ", ".join(named), *source]


def make_card(
    words: Messages,
    title: str,
    formulas: Sequence[str],
    explanation: str,
    footer: CardFooter,
    code: bool = False,
) -> Card:
    """Return a card with formulas, an explanation and the footer in small letters; ``code`` says
    that the title is code."""
    blocks: list[Block] = [*map(Formula, formulas), Prose(explanation)]
    return Card(title, [*blocks, *(Prose(t, small=True) for t in footer.lines(words))], code)
