"""The text that dualml generates: English sentences of a small probabilistic grammar.

A language model can learn within an epoch which kind of word can follow, that subject and verb
agree even across a clause between them, and what is read, planted or crossed. Every choice comes
from the SHA-256 of a counter, so that the sentences are the same on every machine, whatever the
version of any random generator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

Words = list[str]
Pair = tuple[str, str]  # of one, of several
T = TypeVar("T")

SENTENCES = 4_000
DEEPEST = 2  # clauses inside clauses


def pairs(text: str) -> tuple[Pair, ...]:
    """Parse ``"dog dogs, cat cats"`` into (singular, plural) pairs; earlier ones are drawn more
    often."""
    one_of_each = (pair.split() for pair in text.split(","))
    return tuple((one, several) for one, several in one_of_each)


PEOPLE = pairs("child children, teacher teachers, dog dogs, student students, farmer farmers, "
               "cat cats, doctor doctors, bird birds, king kings")  # fmt: skip
BOOK, LETTER, SONG, HOUSE, BOAT, ROAD, TREE, GARDEN, RIVER, PICTURE = pairs(
    "book books, letter letters, song songs, house houses, boat boats, road roads, tree trees, "
    "garden gardens, river rivers, picture pictures"
)
SITES = (HOUSE, GARDEN, TREE, RIVER, BOAT)

ARTICLES = (("the", "a", "every", "this"), ("the", "some", "many", "these"))
#: Adjectives of people and of things.
OF_PEOPLE = ("young", "small", "happy", "wise", "lazy", "brave")
OF_THINGS = ("new", "small", "red", "long", "green", "beautiful")
PLACES = ("in", "near", "behind", "under")

#: Verbs without an object, verbs with people as object, and verbs with their possible objects.
SELF = pairs("sleeps sleep, sings sing, waits wait, runs run, laughs laugh, dreams dream")
ON_PEOPLE = pairs("sees see, likes like, helps help, follows follow")
ON_THINGS = tuple(
    zip(
        pairs("reads read, writes write, paints paint, plants plant, crosses cross, builds build"),
        (
            (BOOK, LETTER),
            (LETTER, BOOK, SONG),
            (PICTURE, HOUSE, BOAT),
            (TREE, GARDEN),
            (RIVER, ROAD, GARDEN),
            (HOUSE, BOAT, ROAD),
        ),
        strict=True,
    )
)
#: Verbs that take a clause.
OF_MIND = pairs("says say, thinks think, knows know")
#: Adverbs of frequency and of manner.
OFTEN, HOW = ("often", "never", "always"), ("quietly", "slowly", "happily", "alone")
TIMES = ("in the morning", "at night", "after school", "on sunday")
LINKS = ("and", "but", "because", "when")


class Draw:
    """Random choices by SHA-256 of a counter, identical on every machine."""

    def __init__(self, key: str = "sentences") -> None:
        self.key, self.drawn = key, 0

    def below(self, n: int) -> int:
        """Draw an integer from 0 to n - 1."""
        self.drawn += 1
        digest = hashlib.sha256(f"{self.key} {self.drawn}".encode()).digest()
        return int.from_bytes(digest[:8], "little") % n

    def chance(self, percent: int) -> bool:
        """Return True with a probability of ``percent`` percent."""
        return self.below(100) < percent

    def of(self, items: Sequence[T]) -> T:
        """Draw one of k items with weights k, k - 1, …, 1."""
        k = len(items)
        left = self.below(k * (k + 1) // 2)
        for i in range(k):
            left -= k - i
            if left < 0:
                return items[i]
        raise AssertionError("the weights add up to more")


def sentences() -> list[Words]:
    """Return all sentences as lists of words, each with its full stop."""
    draw = Draw()
    return [sentence(draw) for _ in range(SENTENCES)]


def sentence(draw: Draw) -> Words:
    """Draw one sentence: one or two clauses, perhaps with a time."""
    early = draw.of(TIMES).split() if draw.chance(15) else []
    first = clause(draw, 0)
    late = draw.of(TIMES).split() if not early and draw.chance(15) else []
    second = [draw.of(LINKS), *clause(draw, 1)] if draw.chance(25) else []
    return [*early, *first, *late, *second, "."]


def clause(draw: Draw, depth: int) -> Words:
    """Draw a subject and a predicate that agree in number."""
    number = draw.below(2)
    return [*someone(draw, number, depth), *doing(draw, number, depth)]


def someone(draw: Draw, number: int, depth: int) -> Words:
    """Draw people as a subject, perhaps with a place or a relative clause."""
    words = noun(draw, number, PEOPLE, OF_PEOPLE)
    more = draw.below(10) if depth < DEEPEST else 9
    if more < 2:
        words += [draw.of(PLACES), *noun(draw, draw.below(2), SITES, OF_THINGS)]
    elif more == 2:
        words += ["that", *doing(draw, number, DEEPEST)]
    elif more == 3:
        other = draw.below(2)
        words += ["that", *noun(draw, other, PEOPLE, OF_PEOPLE), draw.of(ON_PEOPLE)[other]]
    return words


def noun(draw: Draw, number: int, nouns: Sequence[Pair], kinds: Sequence[str]) -> Words:
    """Draw an article, perhaps an adjective, and a noun; ``number`` 0 is singular, 1 plural."""
    kind = [draw.of(kinds)] if draw.chance(35) else []
    return [draw.of(ARTICLES[number]), *kind, draw.of(nouns)[number]]


def doing(draw: Draw, number: int, depth: int) -> Words:
    """Draw a verb in the given number with its object or adverb."""
    often = [draw.of(OFTEN)] if draw.chance(20) else []
    what = draw.below(10)
    if what < 3:
        how = [draw.of(HOW)] if draw.chance(40) else []
        return [*often, draw.of(SELF)[number], *how]
    if what < 7:
        verb, things = draw.of(ON_THINGS)
        return [*often, verb[number], *noun(draw, draw.below(2), things, OF_THINGS)]
    if what < 9 or depth >= DEEPEST:
        return [*often, draw.of(ON_PEOPLE)[number], *someone(draw, draw.below(2), DEEPEST)]
    return [*often, draw.of(OF_MIND)[number], "that", *clause(draw, depth + 1)]
