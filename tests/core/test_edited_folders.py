"""Run folders whose files somebody edited: a page from what can be read, or one line that names the
file; never anything else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_run
import pytest

from dualml.errors import UserError
from dualml.report.compose import compose
from dualml.store.load import load
from dualml.words import Words

EDITS: tuple[Any, ...] = (None, "x", -1e400, 10**400, [], {"a": {"b": [1]}})


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field of a file, of a list the first."""
    if here:
        yield here
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*here, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*here, 0))


@pytest.mark.parametrize("name", ["run.json", "parity.json"])
def test_an_edited_field_is_shown_around_or_named(tmp_path: Path, name: str) -> None:
    folder = fake_run.make(tmp_path)
    file = folder / name
    text = file.read_text("utf-8")
    refusals = []
    for number, place in enumerate(places(json.loads(text))):
        edited = json.loads(text)
        inner = edited
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = EDITS[number % len(EDITS)]
        file.write_text(json.dumps(edited), "utf-8")
        try:
            compose(load([folder]), Words("en"))
        except UserError as error:
            refusals.append(str(error))
    assert all(name in text and "\n" not in text for text in refusals)
    assert refusals or name != "run.json"
