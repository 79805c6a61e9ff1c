"""A card of the principle section: a method in formulas and words, and the arms that use it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

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


@cache
def read_formulas() -> Mapping[str, Mapping[str, Any]]:
    """Read ``formulas.toml``: section → method → ``formulas``, a list of LaTeX strings, and, if
    there is one, ``source``, the publication. The result is cached and must not be changed."""
    return tomllib.loads((files("dualml.report") / "formulas.toml").read_text("utf-8"))


def method_cards(
    words: Messages,
    section: str,
    used: Iterable[tuple[str, str]],
    title: str,
    text: str,
    most: int = 12,
) -> Iterator[Card]:
    """Yield a card for each method of a section of `read_formulas` that an arm uses, in the order
    of the file; other methods are ignored.

    Args:
        words: the messages.
        section: name of the section of ``formulas.toml``.
        used: pairs of an arm and the method that it uses.
        title, text: keys of a card's messages, with ``{}`` in the place of the method's name.
        most: number of arms that a card names.
    """
    arms: dict[str, list[str]] = {}
    for arm, method in used:
        arms.setdefault(method, []).append(arm)
    for method, card in read_formulas()[section].items():
        if method in arms:
            footer = CardFooter(arms[method], card.get("source", ""), most=most)
            name, does = (words(key.format(method)) for key in (title, text))
            yield make_card(words, name, card["formulas"], does, footer)


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
