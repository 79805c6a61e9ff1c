"""Load the catalogue from its TOML files."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

from dualml.common.errors import UserError, did_you_mean
from dualml.parity.diffs.entry import TOPICS, DifferenceEntry

ENTRIES = Path(__file__).with_name("entries")


@functools.cache
def catalogue() -> dict[str, DifferenceEntry]:
    """Return all entries by name, topic by topic in file order."""
    entries: dict[str, DifferenceEntry] = {}
    for topic in TOPICS:
        tables = tomllib.loads((ENTRIES / f"{topic}.toml").read_text("utf-8"))
        for name, fields in tables.items():
            assert name not in entries, f"two entries are called {name}"
            entries[name] = DifferenceEntry(name=name, topic=topic, **fields)
    return entries


def find_entry(name: str) -> DifferenceEntry:
    """Return the entry with this name; words may be separated by ``_`` or ``-``.

    Raises:
        UserError: no entry has this name.
    """
    known, wanted = catalogue(), name.replace("_", "-")
    if wanted in known:
        return known[wanted]
    if name in TOPICS:
        raise UserError(f"{name} is a topic, not an entry: dualml diffs --topic {name}")
    hint = did_you_mean(wanted, known, max_names=3, fallback="; dualml diffs --no-run lists them")
    raise UserError(f"no entry {name!r} in the catalogue{hint}")


def entries_of_topic(topic: str | None) -> list[DifferenceEntry]:
    """Return the entries of a topic, or all entries for None.

    Raises:
        UserError: there is no such topic.
    """
    if topic is not None and topic not in TOPICS:
        raise UserError(f"no topic {topic!r}{did_you_mean(topic, TOPICS)}")
    return [entry for entry in catalogue().values() if topic in (None, entry.topic)]
