"""What was not the same on all backends: their environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dualml.report.blocks import Block, Column, Table
from dualml.report.columns import columns
from dualml.report.topics import Topic
from dualml.store.run import Run
from dualml.words import Words, numbers


def evidence(run: Run, words: Words) -> Iterator[Block]:
    known = {b: run.environment.get(b) or {} for b in run.backends}
    known |= {b: e for b, e in run.environment.items() if b not in known}
    names = dict.fromkeys(k for values in known.values() for k in values)
    rows = [
        [words.either(f"environment.{k}", k), *(_text(values.get(k)) for values in known.values())]
        for k in names
    ]
    if rows:
        shown = [*columns(words, "name"), *(Column(b, b) for b in known)]
        yield Table("environment", words("table.environment"), shown, rows)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return numbers.NONE if value is None else str(value)


TOPIC = Topic("environment", 90, evidence, part="settings")
