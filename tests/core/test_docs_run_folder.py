"""The pages on the run folder name every key that the store writes."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from command import DOCS

import dualml.store
from dualml.store.heads import ParityHead, RunHead, TrialHead, VerdictHead
from dualml.store.jsonfile import Record

for module in pkgutil.iter_modules(dualml.store.__path__):
    importlib.import_module(f"dualml.store.{module.name}")


def records(base: type[Record] = Record) -> list[type[Record]]:
    """Every record of the store."""
    below = [one for kind in base.__subclasses__() for one in (kind, *records(kind))]
    return sorted({one for one in below if one.__module__.startswith("dualml.store.")}, key=str)


#: Read of files of any version: parts of other records.
PARTS = {ParityHead, RunHead, TrialHead, VerdictHead}


@pytest.mark.parametrize("record", [one for one in records() if one not in PARTS])
@pytest.mark.parametrize("page", ["run-folder.md", "run-folder.zh.md"])
def test_every_key_of_a_record_is_named(record: type[Record], page: str) -> None:
    words = set(re.findall(r"\w+", (DOCS / page).read_text("utf-8")))
    assert set(record.model_fields) - words == set(), f"{record.__name__} of {Path(page).name}"
