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
MAX_CLAUSE_DEPTH = 2  # clauses inside clauses


def parse_pairs(text: str) -> tuple[Pair, ...]:
    """Parse ``"dog dogs, cat cats"`` into (singular, plural) pairs; earlier ones are drawn more
    often."""
    one_of_each = (pair.split() for pair in text.split(","))
    return tuple((one, several) for one, several in one_of_each)


PEOPLE = parse_pairs(
    "child children, teacher teachers, dog dogs, student students, farmer farmers, "
    "cat cats, doctor doctors, bird birds, king kings"
)
BOOK, LETTER, SONG, HOUSE, BOAT, ROAD, TREE, GARDEN, RIVER, PICTURE = parse_pairs(
    "book books, letter letters, song songs, house houses, boat boats, road roads, tree trees, "
    "garden gardens, river rivers, picture pictures"
)
SITES = (HOUSE, GARDEN, TREE, RIVER, BOAT)

ARTICLES = (("the", "a", "every", "this"), ("the", "some", "many", "these"))
#: Adjectives of people and of things.
PEOPLE_ADJECTIVES = ("young", "small", "happy", "wise", "lazy", "brave")
THING_ADJECTIVES = ("new", "small", "red", "long", "green", "beautiful")
PLACES = ("in", "near", "behind", "under")

#: Verbs without an object, verbs with people as object, and verbs with their possible objects.
INTRANSITIVE_VERBS = parse_pairs(
    "sleeps sleep, sings sing, waits wait, runs run, laughs laugh, dreams dream"
)
PEOPLE_VERBS = parse_pairs("sees see, likes like, helps help, follows follow")
THING_VERBS = tuple(
    zip(
        parse_pairs(
            "reads read, writes write, paints paint, plants plant, crosses cross, builds build"
        ),
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
CLAUSE_VERBS = parse_pairs("says say, thinks think, knows know")
#: Adverbs of frequency and of manner.
FREQUENCY_ADVERBS = ("often", "never", "always")
MANNER_ADVERBS = ("quietly", "slowly", "happily", "alone")
TIMES = ("in the morning", "at night", "after school", "on sunday")
LINKS = ("and", "but", "because", "when")


class HashRandom:
    """Random choices by SHA-256 of a counter, identical on every machine; objects with equal
    ``key`` draw the same sequence."""

    def __init__(self, key: str = "sentences") -> None:
        self.key, self.drawn = key, 0

    def randbelow(self, n: int) -> int:
        """Draw an integer from 0 to n - 1."""
        self.drawn += 1
        digest = hashlib.sha256(f"{self.key} {self.drawn}".encode()).digest()
        return int.from_bytes(digest[:8], "little") % n

    def chance(self, percent: int) -> bool:
        """Return True with a probability of ``percent`` percent."""
        return self.randbelow(100) < percent

    def weighted_choice(self, items: Sequence[T]) -> T:
        """Draw one of k items with weights k, k - 1, …, 1."""
        k = len(items)
        left = self.randbelow(k * (k + 1) // 2)
        for i in range(k):
            left -= k - i
            if left < 0:
                return items[i]
        raise AssertionError("the weights add up to more")


def make_sentences() -> list[Words]:
    """Return the `SENTENCES` sentences as lists of words, each with its full stop; they are the
    same at every call."""
    draw = HashRandom()
    return [make_sentence(draw) for _ in range(SENTENCES)]


def make_sentence(draw: HashRandom) -> Words:
    """Draw one sentence as a list of words with its full stop: one or two clauses, perhaps with a
    time."""
    early = draw.weighted_choice(TIMES).split() if draw.chance(15) else []
    first = make_clause(draw, 0)
    late = draw.weighted_choice(TIMES).split() if not early and draw.chance(15) else []
    second = [draw.weighted_choice(LINKS), *make_clause(draw, 1)] if draw.chance(25) else []
    return [*early, *first, *late, *second, "."]


def make_clause(draw: HashRandom, depth: int) -> Words:
    """Draw a clause, a subject and a predicate that agree in number; ``depth`` is the number of
    clauses around it."""
    number = draw.randbelow(2)
    return [*make_subject(draw, number, depth), *make_predicate(draw, number, depth)]


def make_subject(draw: HashRandom, number: int, depth: int) -> Words:
    """Draw people as a subject or an object, ``number`` 0 singular and 1 plural, perhaps followed
    by a place or a relative clause, but not at ``depth`` `MAX_CLAUSE_DEPTH`."""
    words = make_noun_phrase(draw, number, PEOPLE, PEOPLE_ADJECTIVES)
    more = draw.randbelow(10) if depth < MAX_CLAUSE_DEPTH else 9
    if more < 2:
        words += [
            draw.weighted_choice(PLACES),
            *make_noun_phrase(draw, draw.randbelow(2), SITES, THING_ADJECTIVES),
        ]
    elif more == 2:
        words += ["that", *make_predicate(draw, number, MAX_CLAUSE_DEPTH)]
    elif more == 3:
        other = draw.randbelow(2)
        words += [
            "that",
            *make_noun_phrase(draw, other, PEOPLE, PEOPLE_ADJECTIVES),
            draw.weighted_choice(PEOPLE_VERBS)[other],
        ]
    return words


def make_noun_phrase(
    draw: HashRandom, number: int, nouns: Sequence[Pair], kinds: Sequence[str]
) -> Words:
    """Draw an article, perhaps an adjective, and a noun; ``number`` 0 is singular, 1 plural."""
    kind = [draw.weighted_choice(kinds)] if draw.chance(35) else []
    return [draw.weighted_choice(ARTICLES[number]), *kind, draw.weighted_choice(nouns)[number]]


def make_predicate(draw: HashRandom, number: int, depth: int) -> Words:
    """Draw a verb, ``number`` 0 singular and 1 plural, with its object, its adverb or, below
    ``depth`` `MAX_CLAUSE_DEPTH`, perhaps a clause with ``that``."""
    often = [draw.weighted_choice(FREQUENCY_ADVERBS)] if draw.chance(20) else []
    what = draw.randbelow(10)
    if what < 3:
        how = [draw.weighted_choice(MANNER_ADVERBS)] if draw.chance(40) else []
        return [*often, draw.weighted_choice(INTRANSITIVE_VERBS)[number], *how]
    if what < 7:
        verb, things = draw.weighted_choice(THING_VERBS)
        return [
            *often,
            verb[number],
            *make_noun_phrase(draw, draw.randbelow(2), things, THING_ADJECTIVES),
        ]
    if what < 9 or depth >= MAX_CLAUSE_DEPTH:
        return [
            *often,
            draw.weighted_choice(PEOPLE_VERBS)[number],
            *make_subject(draw, draw.randbelow(2), MAX_CLAUSE_DEPTH),
        ]
    return [
        *often,
        draw.weighted_choice(CLAUSE_VERBS)[number],
        "that",
        *make_clause(draw, depth + 1),
    ]
