"""The catalogue, read from its files."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from dualml.diffs.entry import TOPICS, Entry
from dualml.errors import UserError, nearest

#: Words of so few letters are looked for whole.
SHORT = 3
ENTRIES = Path(__file__).with_name("entries")


@functools.cache
def catalogue() -> dict[str, Entry]:
    """Name → entry, topic by topic in the order of their files."""
    entries: dict[str, Entry] = {}
    for topic in TOPICS:
        tables = tomllib.loads((ENTRIES / f"{topic}.toml").read_text("utf-8"))
        for name, fields in tables.items():
            assert name not in entries, f"two entries are called {name}"
            entries[name] = Entry(name=name, topic=topic, **fields)
    return entries


def entry(name: str) -> Entry:
    """The entry of this name, ``_`` or ``-`` between its words.

    Raises:
        UserError: there is none.
    """
    known, wanted = catalogue(), name.replace("_", "-")
    if wanted in known:
        return known[wanted]
    if name in TOPICS:
        raise UserError(f"{name} is a topic, not an entry: dualml diffs --topic {name}")
    hint = nearest(wanted, known, most=3, otherwise="; dualml diffs --no-run lists them")
    raise UserError(f"no entry {name!r} in the catalogue{hint}")


def asked_for(words: Sequence[str]) -> list[Entry]:
    """The entry of this name; else those with the most of the words in their name, texts or
    sources, in either language and whatever their case.

    Raises:
        UserError: there is none.
    """
    name = words[0].replace("_", "-")
    if len(words) == 1 and (name in catalogue() or words[0] in TOPICS):
        return [entry(words[0])]
    wanted = [begins(word) for word in " ".join(words).split()]
    hits = {one.name: sum(bool(w.search(text_of(one))) for w in wanted)
            for one in catalogue().values()}  # fmt: skip
    most = max(hits.values())
    if not most:
        return [entry(" ".join(words))]
    return [catalogue()[name] for name, n in hits.items() if n == most]


def begins(word: str) -> re.Pattern[str]:
    """Where a word begins with these letters, or is a short one; Chinese has no spaces between
    words."""
    letters = re.escape(word.casefold())
    if not word.isascii():
        return re.compile(letters)
    return re.compile(rf"(?<![a-z0-9]){letters}" + ("" if len(word) > SHORT else r"(?![a-z0-9])"))


def text_of(one: Entry) -> str:
    both = (one.title, one.torch, one.mindspore, one.remedy)
    texts = [text for part in both for text in (part.en, part.zh)]
    return " ".join((one.name, one.function, *texts, *one.sources)).casefold()


@functools.cache
def explaining() -> dict[str, tuple[str, ...]]:
    """What a comparison of models names, ``layer_norm.eps`` → the entries that are about it."""
    found: dict[str, tuple[str, ...]] = {}
    for one in catalogue().values():
        for cause in one.explains:
            found[cause] = (*found.get(cause, ()), one.name)
    return found


def of_topic(topic: str | None) -> list[Entry]:
    """The entries of a topic, or all of them.

    Raises:
        UserError: there is no such topic.
    """
    if topic is not None and topic not in TOPICS:
        raise UserError(f"no topic {topic!r}{nearest(topic, TOPICS)}")
    return [entry for entry in catalogue().values() if topic in (None, entry.topic)]
